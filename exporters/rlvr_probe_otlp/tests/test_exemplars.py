"""A point of a histogram leads to the span of a value that it took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_otlp.planning.data_model import Buckets, PlannedSpan, Snapshot
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.planning.plan_json import digest
from rlvr_probe_otlp.tests.collector import EACH_PROTOCOL, Collector
from rlvr_probe_otlp.tests.recordings import MADE, Limits, read, send
from rlvr_probe_otlp.wire import sdk_encoding

from rlvr_probe.model.trace import Trace
from tests import today

EVERYTHING = Limits(share=1.0, trajectories=1_000)


@pytest.fixture(params=MADE, scope="module")
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """A recording, read; nobody changes it."""
    folder = tmp_path_factory.mktemp("made")
    MADE[request.param](folder / "run")
    return read(folder / "run", folder)


@pytest.mark.parametrize("limits", [Limits(), Limits(spans=2, trajectories=1), EVERYTHING])
def test_an_exemplar_is_a_value_of_its_point_and_leads_to_a_span_that_is_sent(
    limits: Limits, trace: Trace
) -> None:
    plan = Plan(trace, limits, temporality="delta")
    for unit in plan.units():
        sent = {(span.trace_id, span.span_id): span for one in unit.traces for span in one.spans}
        for point in unit.points:
            for one in point.exemplars:
                assert isinstance(point.value, (Snapshot, Buckets))
                span = sent[one.trace_id, one.span_id]
                assert point.value.min <= one.value <= point.value.max
                assert one.time_ns == span.end_ns
                check(point.metric, one.value, span)


def check(metric: str, value: float, span: PlannedSpan) -> None:
    """The value is that of the span, told by itself."""
    attributes: Any = span.attributes
    if metric == "rlvr.staleness":
        behind = attributes["rl.loop.iteration"] - 1 - attributes["rlvr.policy.version.start"]
        assert value == max(0, behind)
        return
    said: Any = {
        "rl.loop.duration": span.attributes.get("rlvr.step.wall_s"),
        "gen_ai.client.token.usage": None,
        "rlvr.trajectory.turns": span.attributes.get("rl.sample.turns"),
    }.get(metric, (span.end_ns - span.start_ns) / 1e9)
    tokens = {span.attributes.get(f"rl.sample.{kind}_tokens") for kind in ("input", "output")}
    assert value in tokens if said is None else value == pytest.approx(said)


def test_with_every_trajectory_sent_each_histogram_leads_to_its_largest_value(
    tmp_path: Path,
) -> None:
    MADE["actors"](tmp_path / "run")
    plan = Plan(read(tmp_path / "run", tmp_path), EVERYTHING, temporality="delta")
    led = set[str]()
    for unit in plan.units():
        for point in unit.points:
            if isinstance(point.value, Snapshot) and point.exemplars:
                [one] = point.exemplars
                assert one.value == point.value.max
                led.add(point.metric)
    assert led >= {
        "rl.loop.duration", "rl.train.duration", "gen_ai.client.token.usage",
        "rlvr.trajectory.duration", "rlvr.trajectory.turns", "rlvr.turn.duration",
        "rlvr.tool.duration", "rlvr.verify.duration", "rlvr.staleness",
    }  # fmt: skip


@pytest.mark.parametrize("made", ["ranks", "died"])
def test_calls_of_a_reward_function_for_a_batch_lead_to_its_span(made: str, tmp_path: Path) -> None:
    MADE[made](tmp_path / "run")
    plan = Plan(read(tmp_path / "run", tmp_path), temporality="delta")
    modes = set[object]()
    for unit in plan.units():
        sent = {span.span_id: span for one in unit.traces for span in one.spans}
        for point in unit.points:
            if point.metric == "rlvr.verify.duration":
                assert isinstance(point.value, Snapshot)
                [one] = point.exemplars
                assert one.value == point.value.max
                name = point.attributes["rlvr.reward.fn"]
                assert sent[one.span_id].name == f"rl.reward {name}"
                modes.add(point.attributes["rlvr.mode"])
    assert modes == ({"train", "eval"} if made == "died" else {"train"})


def test_a_call_whose_span_is_left_out_has_no_exemplar(tmp_path: Path) -> None:
    MADE["ranks"](tmp_path / "run")
    plan = Plan(read(tmp_path / "run", tmp_path), Limits(spans=2))
    found = [one for unit in plan.units() for one in unit.points if "verify" in one.metric]
    assert found
    assert [one for one in found if one.exemplars] == []


def test_where_points_lead_to_tells_no_point_from_another(tmp_path: Path) -> None:
    MADE["actors"](tmp_path / "run")
    trace = read(tmp_path / "run", tmp_path)
    told = [[digest(unit.points) for unit in Plan(trace, limits).units()]
            for limits in (Limits(), Limits(spans=2, trajectories=0))]  # fmt: skip
    assert told[0] == told[1]


def received(collector: Collector) -> list[Any]:
    return [one for _, point in collector.points() for one in getattr(point, "exemplars", ())]


@EACH_PROTOCOL
@pytest.mark.parametrize("form", today.some(["exponential", "explicit_bucket_histogram"], 1))
def test_they_arrive_with_the_ids_of_spans_that_do(
    form: str, patient: None, collector: Collector, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", form)
    send(read(run, run.parent), run)
    spans = {(span.trace_id, span.span_id) for _, span in collector.spans()}
    found = {(one.trace_id, one.span_id) for one in received(collector)}
    assert len(found) > 5
    assert found <= spans


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_METRICS_EXEMPLAR_FILTER", "always_off"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
    ],
)
def test_there_are_none_where_they_are_not_wanted_or_lead_nowhere(
    name: str, value: str, patient: None, http: Collector, run: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv(name, value)
    send(read(run, run.parent), run)
    assert http.metrics
    assert received(http) == []


def test_an_sdk_that_knows_none_sends_points_without(
    patient: None, http: Collector, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_encoding, "_EXEMPLAR", None)
    send(read(run, run.parent), run)
    assert http.metrics
    assert received(http) == []
