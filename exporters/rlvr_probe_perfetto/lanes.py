"""Rows for spans that overlap: one lies inside another only if it really was part of it."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Bar", "in_lanes"]

_Content = TypeVar("_Content")


@dataclass(frozen=True, slots=True)
class Bar(Generic[_Content]):
    """A span to be drawn.

    Attributes:
        key: Names it among all.
        parent: Key of the span that it is a part of; None for none.
        content: What it is.
    """

    key: Hashable
    parent: Hashable | None
    start_ns: int
    end_ns: int
    content: _Content


def in_lanes(bars: Iterable[Bar[_Content]]) -> Iterator[tuple[int, Bar[_Content]]]:
    """Each bar with the number of its lane, from 0, by start.

    A viewer shows what lies inside another one in the same lane as its child. So a bar shares the
    lane of its parent where that is the innermost one open there and lasts as long; every other one
    has a lane to itself for its time, the lowest that is free.
    """
    free, count = list[int](), 0
    busy = list[tuple[int, int]]()
    stacks = dict[int, list[tuple[Hashable, int]]]()
    lane_of = dict[Hashable, int]()
    for bar in sorted(bars, key=lambda one: (one.start_ns, -one.end_ns)):
        while busy and busy[0][0] <= bar.start_ns:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = lane_of.get(bar.parent) if bar.parent is not None else None
        if lane is not None:
            stack = stacks[lane]
            while len(stack) > 1 and stack[-1][1] <= bar.start_ns:
                stack.pop()
            key, end_ns = stack[-1]
            if key != bar.parent or not bar.end_ns <= end_ns or end_ns <= bar.start_ns:
                lane = None
        if lane is None:
            lane = heapq.heappop(free) if free else count
            count = max(count, lane + 1)
            stacks[lane] = []
            # A bar without length would be in the way of nothing.
            heapq.heappush(busy, (max(bar.end_ns, bar.start_ns + 1), lane))
        stacks[lane].append((bar.key, bar.end_ns))
        lane_of[bar.key] = lane
        yield lane, bar
