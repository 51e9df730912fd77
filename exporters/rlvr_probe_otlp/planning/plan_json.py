"""A plan as JSON, to print it and to see whether parts of it changed.

It is written piece by piece: a long run has more of it than memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from rlvr_probe_otlp.planning.data_model import (
    Buckets,
    PlannedSpan,
    PlannedTrace,
    Point,
    Snapshot,
    Unit,
)
from rlvr_probe_otlp.planning.identity import process_resources, run_resource
from rlvr_probe_otlp.planning.names import LINKED

if TYPE_CHECKING:
    from rlvr_probe_otlp.planning.plan import Plan

__all__ = ["SCHEMA_VERSION", "digest", "document", "fingerprint", "line", "unit_value"]


SCHEMA_VERSION: Final = 1


def document(plan: Plan) -> Iterator[str]:
    """Lines of one JSON object; the same plan gives the same bytes."""
    keys = plan.context.keys
    head = {
        "schema_version": SCHEMA_VERSION,
        "run": plan.context.run,
        "resource": run_resource(plan.trace),
        "processes": dict(zip(keys, process_resources(plan.trace), strict=True)),
        "steps_going_on": plan.waiting,
        "open_spans_unclear": plan.unclear,
    }
    yield "{"
    yield from [f"{json.dumps(name)}: {line(value)}," for name, value in head.items()]
    yield '"units": ['
    for number, unit in enumerate(plan.units()):
        yield f"{',' if number else ''}{line(unit_value(unit, keys))}"
    yield "]}"


def line(value: Any) -> str:
    """JSON without a break; NaN and infinity are mistakes."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def digest(points: Sequence[Point]) -> str:
    """Distinguishes points; not by the spans that they point to, which follow from the limits."""
    return _digest([_point(point) for point in points])


def fingerprint(trace: PlannedTrace | None, keys: Sequence[str], more: object) -> str:
    """Changes with a trace, but for its links: later traces change those of earlier ones.

    Args:
        trace: The trace of a step, if it has one.
        keys: Key of each process.
        more: What else decides of it.
    """
    spans = () if trace is None else trace.spans
    said = [_span(replace(span, links=()), keys) for span in spans]
    for span in said[:1]:
        span["attributes"].pop(LINKED, None)
    return _digest([said, more])


def _digest(value: Any) -> str:
    return blake2b(line(value).encode(), digest_size=16).hexdigest()


def unit_value(unit: Unit, keys: Sequence[str]) -> dict[str, Any]:
    """A unit; ``keys`` holds that of each process."""
    return {
        "key": unit.key,
        "title": unit.title,
        "content": unit.content,
        "traces": [
            {
                "trace_id": trace.trace_id,
                "left_out": trace.left_out,
                "spans": [_span(span, keys) for span in trace.spans],
            }
            for trace in unit.traces
        ],
        "points": [_point_with_exemplars(point) for point in unit.points],
    }


def _span(span: PlannedSpan, keys: Sequence[str]) -> dict[str, Any]:
    return {
        "span_id": span.span_id,
        "parent_span_id": span.parent_id,
        "name": span.name,
        "kind": span.kind,
        "start_unix_nano": span.start_ns,
        "end_unix_nano": span.end_ns,
        "process": keys[span.process],
        "status": "error" if span.failed else "unset",
        "attributes": dict(sorted(span.attributes.items())),
        "links": [
            {
                "trace_id": link.trace_id,
                "span_id": link.span_id,
                "attributes": dict(sorted(link.attributes.items())),
            }
            for link in span.links
        ],
    }


def _point(point: Point) -> dict[str, Any]:
    value = point.value
    return {
        "metric": point.metric,
        "unit": point.unit,
        "kind": point.kind,
        "attributes": dict(sorted(point.attributes.items())),
        "start_unix_nano": point.start_ns,
        "time_unix_nano": point.time_ns,
        "value": value if isinstance(value, (int, float)) else _histogram(value),
    }


def _point_with_exemplars(point: Point) -> dict[str, Any]:
    exemplars = [
        {
            "value": exemplar.value,
            "time_unix_nano": exemplar.time_ns,
            "trace_id": exemplar.trace_id,
            "span_id": exemplar.span_id,
        }
        for exemplar in point.exemplars
    ]
    return {**_point(point), **({"exemplars": exemplars} if exemplars else {})}


def _histogram(shot: Snapshot | Buckets) -> dict[str, Any]:
    found = {"count": shot.count, "sum": shot.sum, "min": shot.min, "max": shot.max}
    counts = {"bucket_counts": list(shot.counts)}
    if isinstance(shot, Buckets):
        return {**found, "explicit_bounds": list(shot.bounds), **counts}
    return {**found, "scale": shot.scale, "zero_count": shot.zero, "offset": shot.offset, **counts}
