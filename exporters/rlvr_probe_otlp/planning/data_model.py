"""The data model of a plan: spans, traces, points and units, without the SDK.

Times are ns since 1970. Ids are lower-case hex: 32 digits for a trace, 16 for a span. Attributes
hold text, whole numbers of 64 bits, finite numbers, truth values, or short lists of one kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

__all__ = [
    "ERROR",
    "Attributes",
    "Buckets",
    "Exemplar",
    "Kind",
    "Link",
    "PlannedSpan",
    "PlannedTrace",
    "Point",
    "Snapshot",
    "Unit",
    "Value",
]

Value = str | bool | int | float | Sequence[str] | Sequence[int] | Sequence[float]
Attributes = Mapping[str, Value]
Kind = Literal["internal", "client", "server"]

ERROR: Final = "error.type"
"""Attribute that says why a span failed: what has it failed, and nothing else."""


@dataclass(frozen=True, slots=True)
class Link:
    """A span of another trace that has to do with this one."""

    trace_id: str
    span_id: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class PlannedSpan:
    """One span.

    Attributes:
        process: Index into the processes of the run: whose resource it has.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: Kind
    start_ns: int
    end_ns: int
    process: int
    attributes: Attributes
    links: Sequence[Link] = ()

    @property
    def failed(self) -> bool:
        """Whether its status is an error."""
        return ERROR in self.attributes


@dataclass(frozen=True, slots=True)
class PlannedTrace:
    """One trace: a step, a trajectory, or what belongs to no step.

    Attributes:
        spans: By start, the root first.
        left_out: Spans beyond the bound; the root says which kinds and how long they were.
    """

    trace_id: str
    spans: Sequence[PlannedSpan]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An exponential histogram: bucket i counts values in (2^(i/2^scale), 2^((i+1)/2^scale)].

    Attributes:
        zero: Values that are 0.
        offset: Number of the first bucket.
        counts: One per bucket.
    """

    count: int
    sum: float
    min: float
    max: float
    scale: int
    zero: int
    offset: int
    counts: Sequence[int]


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram of fixed bounds: bucket i counts up to ``bounds[i]``, the last one the rest."""

    count: int
    sum: float
    min: float
    max: float
    bounds: Sequence[float]
    counts: Sequence[int]


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One value that a histogram took since the point before, and the span that it is of."""

    value: float
    time_ns: int
    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class Point:
    """One data point of one metric.

    Attributes:
        kind: ``sum`` counts up, ``updown`` counts, ``gauge`` holds at the moment.
        start_ns: From when on it counts; of a gauge, its time.
        exemplars: Of a histogram.
    """

    metric: str
    unit: str
    kind: Literal["sum", "updown", "gauge", "histogram"]
    attributes: Attributes
    start_ns: int
    time_ns: int
    value: float | Snapshot | Buckets
    exemplars: Sequence[Exemplar] = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """What is sent together, and is not sent again once it was taken: a step with its trajectories.

    Attributes:
        key: Names it in every plan of the run.
        title: For people.
        content: Changes with its traces, which were less while less of the recording was there.
    """

    key: str
    title: str
    content: str
    traces: Sequence[PlannedTrace] = ()
    points: Sequence[Point] = ()
