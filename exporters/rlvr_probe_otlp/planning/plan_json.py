"""Parts of a plan as JSON values, to print them and to see whether they changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from rlvr_probe_otlp.planning.data_model import (
    Buckets,
    PlannedSpan,
    PlannedTrace,
    Point,
    Snapshot,
    Unit,
)
from rlvr_probe_otlp.planning.names import LINKED

__all__ = ["digest", "fingerprint", "line", "unit_value"]


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
        "points": [{**_point(point), **_exemplars(point)} for point in unit.points],
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


def _point(point: Point) -> dict[str, Any]:
    value = point.value
    return {
        "metric": point.metric,
        "unit": point.unit,
        "kind": point.kind,
        "attributes": _attributes(point.attributes),
        "start_unix_nano": point.start_ns,
        "time_unix_nano": point.time_ns,
        "value": value if isinstance(value, (int, float)) else _histogram(value),
    }


def _exemplars(point: Point) -> dict[str, Any]:
    if not point.exemplars:
        return {}
    return {
        "exemplars": [
            {
                "value": exemplar.value,
                "time_unix_nano": exemplar.time_ns,
                "trace_id": exemplar.trace_id,
                "span_id": exemplar.span_id,
            }
            for exemplar in point.exemplars
        ]
    }


def _histogram(shot: Snapshot | Buckets) -> dict[str, Any]:
    found = {"count": shot.count, "sum": shot.sum, "min": shot.min, "max": shot.max}
    counts = {"bucket_counts": list(shot.counts)}
    if isinstance(shot, Buckets):
        return {**found, "explicit_bounds": list(shot.bounds), **counts}
    return {**found, "scale": shot.scale, "zero_count": shot.zero, "offset": shot.offset, **counts}


def _attributes(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        for name, value in sorted(given.items())
    }
