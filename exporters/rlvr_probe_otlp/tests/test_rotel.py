"""Through a collector that is not ours, everything that was planned arrives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_otlp.planning.data_model import PlannedSpan
from rlvr_probe_otlp.planning.names import SCHEMA_URL
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.tests.collector import (
    EACH_PROTOCOL,
    Collector,
    attributes,
    http_collector,
)
from rlvr_probe_otlp.tests.recordings import read, send
from rlvr_probe_otlp.tests.rotel import rotel
from rlvr_probe_otlp.tests.test_two_nodes import NODES, part

from rlvr_probe.model.trace import Trace
from tests.actors import Job
from tests.jobs import wait_for

pytestmark = pytest.mark.conformance

PATIENCE_S = 60.0


@pytest.fixture
def behind(
    protocol: str, patient: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Collector]:
    """What a Rotel passes on that the settings name, by the protocol."""
    with http_collector() as last, rotel(tmp_path, last.endpoint) as first:
        endpoint = first.grpc if protocol == "grpc" else first.http
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        yield last


def sent(trace: Trace, folder: Path, behind: Collector) -> list[PlannedSpan]:
    """The spans of a plan, once as many of them, and of its points, have arrived as it has."""
    spans, points = (sum(1 for _ in found()) for found in (behind.spans, behind.points))
    units = [*Plan(trace).units()]
    planned = [span for unit in units for one in unit.traces for span in one.spans]
    spans, points = spans + len(planned), points + sum(len(unit.points) for unit in units)
    send(trace, folder)

    def arrived(found: Callable[[], Iterator[object]], count: int) -> bool:
        return sum(1 for _ in found()) >= count

    wait_for(lambda: arrived(behind.spans, spans) and arrived(behind.points, points), PATIENCE_S)
    return planned


@EACH_PROTOCOL
def test_every_span_and_point_arrives_as_it_was_planned(behind: Collector, tmp_path: Path) -> None:
    Job(tmp_path / "run", steps=4, turns=4, other_machine=300 * 10**9).write()
    trace = read(tmp_path / "run", tmp_path)
    planned = {one.span_id: one for one in sent(trace, tmp_path / "run", behind)}
    found = {span.span_id.hex(): (said, span) for said, span in behind.spans()}
    assert found.keys() == planned.keys()
    for key, plan in planned.items():
        said, span = found[key]
        assert said["service.instance.id"] == trace.processes[plan.process].key
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (
            plan.trace_id, plan.parent_id or "",
        )  # fmt: skip
        assert (span.name, span.start_time_unix_nano, span.end_time_unix_nano) == (
            plan.name, plan.start_ns, plan.end_ns,
        )  # fmt: skip
        assert attributes(span.attributes) == dict(plan.attributes)
        assert (span.status.code == 2) is plan.failed
        assert [(one.trace_id.hex(), one.span_id.hex()) for one in span.links] == [
            (one.trace_id, one.span_id) for one in plan.links
        ]
    assert schemas(behind) == {SCHEMA_URL}
    told = Counter(
        (point.metric, point.time_ns, str(sorted(point.attributes.items())),
         tuple((one.trace_id, one.span_id) for one in point.exemplars))
        for unit in Plan(trace).units()
        for point in unit.points
    )  # fmt: skip
    assert told == Counter(
        (metric.name, point.time_unix_nano, str(sorted(attributes(point.attributes).items())),
         tuple((one.trace_id.hex(), one.span_id.hex()) for one in getattr(point, "exemplars", ())))
        for metric, point in behind.points()
    )  # fmt: skip


def schemas(collector: Collector) -> set[str]:
    resources: list[Any] = [one for request in collector.traces for one in request.resource_spans]
    resources += [one for request in collector.metrics for one in request.resource_metrics]
    return {one.schema_url for one in resources}


@EACH_PROTOCOL
def test_parts_of_one_run_that_two_nodes_send_stay_apart(behind: Collector, tmp_path: Path) -> None:
    for node in range(NODES):
        folder = part(tmp_path, node)
        sent(read(folder, tmp_path), folder, behind)
    times = Counter((span.trace_id, span.span_id) for _, span in behind.spans())
    assert set(times.values()) == {1}
    roots = Counter(
        span.trace_id
        for _, span in behind.spans()
        if span.name == "rl.loop" and not span.parent_span_id
    )
    assert set(roots.values()) == {NODES}
    senders = {
        attributes(one.resource.attributes)["service.instance.id"]
        for request in behind.metrics
        for one in request.resource_metrics
    }
    assert len(senders) == NODES
