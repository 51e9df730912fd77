"""Slices: the names and arguments that they show, and their order."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeAlias

from rlvr_probe.model import names
from rlvr_probe.model.trace import OpenSpan, Span

__all__ = ["Group", "Slice", "arguments", "in_order", "shown", "slice_of", "unfinished_slice"]

_JOINING: Final = frozenset({"batch", "call", "key", "rows"})
"""Attributes that only join rows of a recording."""

_DECLARED: Final[Mapping[str, frozenset[str]]] = {
    name.name: frozenset(attribute.name for attribute in name.attributes) - _JOINING
    for name in names.ALL
}

_SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    names.RPC.name: ("method",),
    names.REWARD_FN.name: ("function",),
    names.USER.name: ("label",),
    names.WAIT.name: ("on",),
}
"""Attributes that a name goes with, by span."""

_STAGES: Final = frozenset(names.STAGES)
_LONGEST: Final = 256


@dataclass(frozen=True, slots=True)
class Slice:
    """One bar.

    Attributes:
        process: Index of its process; what else it belongs to where there is none.
        key: Names it among the slices of its process.
        parent: Key of the one around it; None if there is none.
        name, kind: What is on it, and what can be filtered by.
        start_ns, end_ns: On the clock of the run.
        arguments: What is shown when it is selected.
        within_any: Whether it may lie in any slice that is around it in time.
    """

    process: int
    key: Hashable
    parent: Hashable
    name: str
    kind: str
    start_ns: int
    end_ns: int
    arguments: Mapping[str, object] = field(default_factory=dict)
    within_any: bool = True


def shown(value: object) -> object:
    """A value as it may be shown; None if it may not."""
    if isinstance(value, str):
        return "".join(c if c.isprintable() else "?" for c in value[:_LONGEST])
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int) and abs(value) < 1 << 63 else None


def arguments(given: Mapping[str, object]) -> dict[str, object]:
    """Those of ``given`` that are known and may be shown."""
    checked = {name: shown(value) for name, value in given.items()}
    return {name: value for name, value in checked.items() if value is not None}


def slice_of(span: Span, more: Mapping[str, object] | None = None) -> Slice:
    """A finished span; attributes that its name does not declare stay out."""
    declared = _DECLARED.get(span.name, frozenset())
    given = {name: value for name, value in span.attributes.items() if name in declared}
    return Slice(
        span.process, span.id, span.parent or None, _title(span.name, given), _kind(span.name),
        span.start_ns, max(span.start_ns, span.end_ns),
        arguments({**given, "error": span.error, **(more or {})}),
    )  # fmt: skip


def unfinished_slice(span: OpenSpan, end_ns: int, state: str) -> Slice:
    """A span that had not ended when its process was last seen."""
    going = state in ("running", "unknown")
    ended = "died" if state == "died" else "ended"
    said = "had not ended when it was read" if going else f"was open when its process {ended}"
    step = span.name == names.STEP.name and span.step is not None
    name = f"step {span.step}" if step else span.name
    if span.detail and not step:
        name = f"{name}: {shown(span.detail)}"
    return Slice(
        span.process, span.id, None, f"{name} (unfinished)", _kind(span.name),
        span.start_ns, max(span.start_ns, end_ns),
        arguments({"step": span.step, "detail": span.detail or None, "unfinished": said}),
    )  # fmt: skip


def _title(name: str, given: Mapping[str, object]) -> str:
    if name == names.STEP.name and isinstance(given.get("step"), int):
        return f"step {given['step']}"
    words = [
        str(shown(given[attribute]))
        for attribute in _SHOWN.get(name, ())
        if shown(given.get(attribute))
    ]
    return f"{name}: {' '.join(words)}" if words else name


def _kind(name: str) -> str:
    return "stage" if name in _STAGES else name


Group: TypeAlias = "tuple[int, Callable[[], Iterable[Slice]]]"
"""Slices that are made when they are wanted, and a time before which none of them starts, ns."""


def in_order(groups: Iterable[Group]) -> Iterator[Slice]:
    """The slices of all groups by start, outer ones first.

    Of groups that do not overlap in time one is in memory at once.
    """
    numbers = count()
    waiting = list[tuple[int, int, bool, int, Slice]]()

    def until(start_ns: int | None) -> Iterator[Slice]:
        while waiting and (start_ns is None or waiting[0][0] < start_ns):
            alike = [heapq.heappop(waiting)]
            while waiting and waiting[0][:2] == alike[0][:2]:
                alike.append(heapq.heappop(waiting))
            yield from _parents_first([bar for *_, bar in alike])

    for start_ns, load in sorted(groups, key=lambda group: group[0]):
        yield from until(start_ns)
        for bar in load():
            inner = bar.kind != names.STEP.name
            heapq.heappush(waiting, (bar.start_ns, -bar.end_ns, inner, next(numbers), bar))
    yield from until(None)


def _parents_first(alike: list[Slice]) -> Iterator[Slice]:
    """Slices with the same start and end."""
    while len(alike) > 1:
        known = {(bar.process, bar.key) for bar in alike}
        inner = [bar for bar in alike if (bar.process, bar.parent) in known]
        if len(inner) == len(alike):
            break
        yield from (bar for bar in alike if (bar.process, bar.parent) not in known)
        alike = inner
    yield from alike
