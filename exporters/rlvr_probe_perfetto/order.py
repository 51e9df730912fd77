"""Slices of a whole run in the order of their start, a few steps of them in memory."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import TypeAlias

from rlvr_probe.model import names
from rlvr_probe_perfetto.slices import Slice

__all__ = ["Group", "in_order"]

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
