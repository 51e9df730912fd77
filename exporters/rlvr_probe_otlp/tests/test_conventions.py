"""What goes out is said as OpenTelemetry's conventions say it, whatever the recording is like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_otlp.planning.data_model import PlannedSpan, PlannedTrace
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.scraping.exposition import REGISTRY, prometheus_name
from rlvr_probe_otlp.tests.collector import Collector
from rlvr_probe_otlp.tests.recordings import (
    EPOCH_NS,
    MADE,
    Limits,
    died,
    gpu,
    read,
    send,
    spans,
    traces,
    truth,
)

from rlvr_probe.model import names
from rlvr_probe.model.counters import COUNTERS
from tests.actors import SECOND
from tests.journals import JournalFile, Training
from tests.truth import tell

EVERYTHING = Limits(share=1.0, trajectories=1_000)


@pytest.fixture(params=MADE, scope="module")
def planned(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[PlannedTrace]:
    """Every trace of a recording; nobody changes it."""
    folder = tmp_path_factory.mktemp("made")
    MADE[request.param](folder / "run")
    return [*traces(read(folder / "run", folder), EVERYTHING)]


def test_nothing_in_a_trace_begins_before_its_root(planned: list[PlannedTrace]) -> None:
    for one in planned:
        root, *others = one.spans
        assert root.parent_id is None
        assert [span.name for span in others if span.start_ns < root.start_ns] == []


def test_a_span_is_an_error_where_it_says_which_and_nowhere_else(
    planned: list[PlannedTrace],
) -> None:
    spans = [span for one in planned for span in one.spans]
    assert all(span.failed is bool(span.attributes.get("error.type")) for span in spans)


def test_a_root_that_holds_a_failure_says_which(tmp_path: Path) -> None:
    died(tmp_path / "run")
    found = [*traces(read(tmp_path / "run", tmp_path))]
    failed = [(one.spans[0].name, one.spans[0].attributes["error.type"])
              for one in found if one.spans[0].failed]  # fmt: skip
    assert failed == [("rl.loop", "process_died")]


def test_what_was_fetched_before_its_step_began_is_under_a_root_that_begins_with_it(
    tmp_path: Path,
) -> None:
    journal = JournalFile(tmp_path / "run")
    training = Training(journal)
    training.begin()
    begin_s = training.now_s
    journal.span(names.DATA, begin_s, begin_s + 0.5, session=0, step=1)
    training.now_s = begin_s + 1
    training.step(1)
    journal.close()
    [step] = traces(read(tmp_path / "run", tmp_path))
    root, *others = step.spans
    assert root.start_ns == EPOCH_NS + round(begin_s * SECOND)
    [whole] = [span for span in others if span.name == "rlvr.rank_step"]
    assert whole.start_ns == EPOCH_NS + round((begin_s + 1) * SECOND), "as it was recorded"
    assert root.attributes["rlvr.step.wall_s"] == pytest.approx(
        (whole.end_ns - whole.start_ns) / 1e9
    )


TOOLS = [
    ({"status": "ok"}, None),
    ({"status": None}, None),
    ({"status": "error", "error": "TimeoutError"}, "TimeoutError"),
    ({"status": "error"}, "_OTHER"),
    ({"status": "cancelled"}, "cancelled"),
    ({"status": "not_found"}, "not_found"),
]


@pytest.mark.parametrize(("said", "expected"), TOOLS)
def test_a_tool_that_failed_says_how(
    said: dict[str, Any], expected: str | None, tmp_path: Path
) -> None:
    tool = next(span for span in _of_tool(said, tmp_path) if span.name.startswith("execute_tool"))
    assert (tool.attributes.get("error.type"), tool.failed) == (expected, expected is not None)


def test_a_trajectory_whose_tool_raised_says_what(tmp_path: Path) -> None:
    root, *_ = _of_tool({"status": "error", "error": "TimeoutError"}, tmp_path)
    assert root.attributes["error.type"] == "TimeoutError"


def test_a_model_that_only_a_worker_knows_is_what_a_turn_asked(tmp_path: Path) -> None:
    spans = _of_tool({"status": "ok"}, tmp_path, told="qwen3_moe", model_type=None)
    [turn] = [span for span in spans if span.name.startswith("chat")]
    assert turn.name == "chat qwen3_moe"
    assert turn.attributes["gen_ai.request.model"] == "qwen3_moe"


def _of_tool(
    said: dict[str, Any], tmp_path: Path, told: str | None = None, **facts: Any
) -> list[PlannedSpan]:
    """The trace of a trajectory with one call of a tool; a worker told of its model."""
    worker = JournalFile(tmp_path / "run", 2)
    if told is not None:
        worker.event(names.PROCESS, 0, model_type=told)
        worker.close()
    journal = JournalFile(tmp_path / "run")
    training = Training(journal)
    training.begin(**{"engine": "vllm-colocate", "model_type": "qwen2"} | facts)
    batch = journal.next_span()
    journal.span(names.TURN, 1, 3, rows=0, turn=0, batch=batch, prompt_tokens=9,
                 response_tokens=4)  # fmt: skip
    journal.span(names.TOOL_CALL, 3, 4, batch=batch, row=0, turn=0, tool="search", **said)
    journal.event(
        names.TRAJECTORIES, 7, session=0, step=1, mode="train", batch=batch, offset=0, total=1,
        group_size=1, prompt_tokens=[9], response_tokens=[4],
    )  # fmt: skip
    journal.span(names.STEP, 0.5, 8, session=0, step=1)
    journal.close()
    found = traces(read(tmp_path / "run", tmp_path), EVERYTHING)
    return [*next(one.spans for one in found if one.spans[0].name == "rlvr.trajectory")]


CONVENTIONS = {
    "gen_ai.client.token.usage": ("histogram", "{token}"),
    "hw.energy": ("sum", "J"),
    "hw.errors": ("sum", "{error}"),
    "hw.gpu.memory.usage": ("updown", "By"),
    "hw.gpu.utilization": ("gauge", "1"),
    "hw.power": ("gauge", "W"),
    "hw.temperature": ("gauge", "Cel"),
    "system.disk.io": ("sum", "By"),
    "system.memory.usage": ("updown", "By"),
    "system.network.io": ("sum", "By"),
}
"""Instrument and unit of metrics as semantic conventions 1.44 (of GenAI: 1.42) have them."""


def test_a_metric_with_a_name_of_the_conventions_is_the_one_they_mean() -> None:
    sent = {
        name: (metric.kind, metric.unit)
        for name, metric in REGISTRY.items()
        if not name.startswith(("rl.", "rlvr."))
    }
    assert sent == CONVENTIONS


def test_what_is_called_a_ratio_is_a_share_from_0_to_1() -> None:
    shares = {one.otel for one in COUNTERS if one.unit == "1"}
    called = {
        name for name, metric in REGISTRY.items() if prometheus_name(metric).endswith("_ratio")
    }
    assert called == shares


def test_memory_of_a_host_is_not_that_of_a_gpu(tmp_path: Path) -> None:
    sidecar = JournalFile(tmp_path / "run", 90)
    sidecar.event(names.PROCESS, 0, role=names.SIDECAR)
    tell(sidecar, 0, "host-1", truth(), gpm=False, kind="host", vendor="host")
    tell(sidecar, 1, gpu(1), truth())
    sidecar.close()
    plan = Plan(read(tmp_path / "run", tmp_path))
    points = [p for unit in plan.units() for p in unit.points if "memory" in p.metric]
    said = {
        (p.metric, p.kind, p.unit, p.attributes["hw.type"], p.attributes.get("system.memory.state"))
        for p in points
    }
    assert said == {
        ("system.memory.usage", "updown", "By", "host", "used"),
        ("hw.gpu.memory.usage", "updown", "By", "gpu", None),
    }
    assert all(isinstance(point.value, int) for point in points), "bytes"
    since = {point.start_ns for point in points}
    assert all(point.time_ns > point.start_ns for point in points)
    assert len(since) <= 2, "one beginning of each series"


def test_who_generated_is_said_of_every_turn_and_trajectory_and_of_their_tokens(
    tmp_path: Path,
) -> None:
    spans = _of_tool({"status": "ok"}, tmp_path)
    said = {"gen_ai.provider.name": "vllm", "gen_ai.request.model": "qwen2"}
    generated = [span for span in spans if not span.name.startswith("execute_tool")]
    assert [span.name for span in generated] == ["rlvr.trajectory", "chat qwen2"]
    assert all(said.items() <= span.attributes.items() for span in generated)
    tokens = [
        point.attributes
        for unit in Plan(read(tmp_path / "run", tmp_path)).units()
        for point in unit.points
        if point.metric == "gen_ai.client.token.usage"
    ]
    said["gen_ai.operation.name"] = "invoke_agent"
    assert tokens
    assert all(said.items() <= one.items() for one in tokens)


def test_who_generated_is_absent_where_nobody_told(tmp_path: Path) -> None:
    spans = _of_tool({"status": "ok"}, tmp_path, engine=None, model_type=None)
    assert [span.name for span in spans][1:] == ["chat", "execute_tool search"]
    said = {name for span in spans for name in span.attributes}
    assert not said & {"gen_ai.provider.name", "gen_ai.request.model"}


def test_no_time_of_a_process_is_in_two_buckets(planned: list[PlannedTrace]) -> None:
    for one in planned:
        spans = {span.span_id: span for span in one.spans}
        for span in one.spans:
            above = span.parent_id
            while above is not None and "rl.bucket" in span.attributes:
                assert "rl.bucket" not in spans[above].attributes
                above = spans[above].parent_id


def test_a_stage_is_in_the_bucket_that_nemo_rl_has_for_it(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "run")
    training = Training(journal)
    training.begin()
    training.evaluate(1)
    training.step(1)
    where: dict[str, Any] = {"session": 0, "step": 2, "mode": "train"}
    begin_s = training.now_s
    reward = journal.next_span()
    journal.span(names.OLD_LOGPROB, begin_s, begin_s + 0.1, **where)
    journal.span(names.WAIT, begin_s + 0.2, begin_s + 0.3, parent=reward, **where, on="ranks")
    journal.span(names.REWARD, begin_s + 0.1, begin_s + 0.3, span=reward, **where)
    journal.span(names.WEIGHT_SYNC, begin_s + 0.3, begin_s + 0.4, **where)
    journal.span(names.UPDATE_ACTOR, begin_s + 0.4, begin_s + 0.5, error="OutOfMemory", **where)
    journal.span(names.STEP, begin_s, begin_s + 0.5, session=0, step=2)
    journal.close()
    said = {
        (span.name, span.attributes["rl.loop.iteration"], span.attributes.get("rlvr.mode")):
        span.attributes.get("rl.bucket")
        for one in traces(read(tmp_path / "run", tmp_path))
        for span in one.spans
        if "rlvr.stage" in span.attributes
    }  # fmt: skip
    assert said == {
        ("rlvr.evaluate", 1, "eval"): None,
        ("rl.sample", 1, "eval"): "overhead",
        ("rl.reward", 1, "eval"): "overhead",
        ("rl.sample", 1, "train"): "productive",
        ("rl.reward", 1, "train"): "productive",
        ("rl.train", 1, "train"): "productive",
        ("rlvr.logprob", 2, "train"): "overhead",
        ("rlvr.wait ranks", 2, "train"): "idle",
        ("rl.reward", 2, "train"): None,
        ("rl.sync", 2, "train"): "overhead",
        ("rl.train", 2, "train"): "wasted",
    }


@pytest.mark.parametrize(
    ("error", "bucket"), [(None, "overhead"), ("OutOfMemory", "wasted")], ids=["whole", "failed"]
)
def test_an_evaluation_of_which_no_stage_is_known_is_in_a_bucket_itself(
    error: str | None, bucket: str, tmp_path: Path
) -> None:
    journal = JournalFile(tmp_path / "run")
    training = Training(journal)
    training.begin()
    begin_s = training.now_s
    where: dict[str, Any] = {"session": 0, "step": 1, "mode": "eval"}
    # As verl tells it: who generates is asked by a call.
    span = journal.span(names.EVAL, begin_s, begin_s + 0.5, error=error, **where)
    journal.span(names.RPC, begin_s, begin_s + 0.4, parent=span, side="caller", method="generate")
    training.now_s += 0.5
    training.step(1)
    journal.close()
    found = [
        one.attributes.get("rl.bucket")
        for one in spans(read(tmp_path / "run", tmp_path))
        if one.attributes.get("rlvr.stage") == "eval"
    ]
    assert found == [bucket]


def test_what_a_later_attempt_threw_away_is_wasted(tmp_path: Path) -> None:
    MADE["resumed"](tmp_path / "run")
    found = [*traces(read(tmp_path / "run", tmp_path))]
    thrown = [one for one in found if one.spans[0].attributes.get("rlvr.step.superseded")]
    assert thrown
    said = {
        span.attributes["rl.bucket"]
        for one in thrown
        for span in one.spans
        if "rl.bucket" in span.attributes
    }
    assert said <= {"wasted", "idle"}
    assert "wasted" in said


def test_every_name_follows_a_schema_that_is_named(
    patient: None, http: Collector, run: Path
) -> None:
    send(read(run, run.parent), run)
    assert http.traces
    assert http.metrics
    said = [
        one.schema_url
        for request in http.traces
        for resource in request.resource_spans
        for one in (resource, *resource.scope_spans)
    ] + [
        one.schema_url
        for request in http.metrics
        for resource in request.resource_metrics
        for one in (resource, *resource.scope_metrics)
    ]
    assert set(said) == {"https://opentelemetry.io/schemas/1.44.0"}
