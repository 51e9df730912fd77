"""The plan as a JSON document, written piece by piece: a long run has more of it than memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlvr_probe_otlp.plan import Plan
from rlvr_probe_otlp.resources import process_resources, run_resource
from rlvr_probe_otlp.telemetry import PlannedSpan, Point, Snapshot, Unit

__all__ = ["SCHEMA_VERSION", "document"]

SCHEMA_VERSION = 1


def document(plan: Plan) -> Iterator[str]:
    """Lines of one JSON object; the same plan gives the same bytes."""
    resources = process_resources(plan.trace)
    head = {
        "schema_version": SCHEMA_VERSION,
        "run": plan.context.run,
        "resource": run_resource(plan.trace),
        "processes": resources,
        "steps_going_on": plan.waiting,
        "open_spans_unclear": plan.unclear,
    }
    lines = [f"{json.dumps(name)}: {_line(value)}," for name, value in head.items()]
    yield "{"
    yield from lines
    yield '"units": ['
    before = ""
    for unit in plan.units():
        yield f"{before}{_line(_unit(unit))}"
        before = ","
    yield "]}"


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _unit(unit: Unit) -> Mapping[str, Any]:
    return {
        "key": unit.key,
        "title": unit.title,
        "traces": [
            {
                "trace_id": trace.trace_id,
                "left_out": trace.left_out,
                "spans": [_span(span) for span in trace.spans],
            }
            for trace in unit.traces
        ],
        "points": [_point(point) for point in unit.points],
    }


def _span(span: PlannedSpan) -> Mapping[str, Any]:
    return {
        "span_id": span.span_id,
        "parent_span_id": span.parent_id,
        "name": span.name,
        "kind": span.kind,
        "start_unix_nano": span.start_ns,
        "end_unix_nano": span.end_ns,
        "process": span.process,
        "status": "error" if span.failed else "unset",
        "attributes": _attributes(span.attributes),
        "links": [
            {
                "trace_id": link.trace_id,
                "span_id": link.span_id,
                "attributes": _attributes(link.attributes),
            }
            for link in span.links
        ],
    }


def _point(point: Point) -> Mapping[str, Any]:
    value = point.value
    return {
        "metric": point.metric,
        "unit": point.unit,
        "kind": point.kind,
        "attributes": _attributes(point.attributes),
        "start_unix_nano": point.start_ns,
        "time_unix_nano": point.time_ns,
        "value": _snapshot(value) if isinstance(value, Snapshot) else value,
    }


def _snapshot(shot: Snapshot) -> Mapping[str, Any]:
    return {
        "count": shot.count,
        "sum": shot.sum,
        "min": shot.min,
        "max": shot.max,
        "scale": shot.scale,
        "zero_count": shot.zero,
        "offset": shot.offset,
        "bucket_counts": list(shot.counts),
    }


def _attributes(given: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        name: list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        for name, value in sorted(given.items())
    }
