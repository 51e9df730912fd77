"""Puts slices of one process side by side, so that those on one line lie inside one another.

Viewers drop, or draw wrong, slices of a thread that overlap without nesting. What a process did at
the same time, in threads or coroutines, is known to be concurrent only by its times and parents.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable

__all__ = ["Lanes"]


class Lanes:
    """Lines of one process; a slice is put on the first that it fits."""

    def __init__(self) -> None:
        """Start without lines."""
        self._stacks = list[list[tuple[int, Hashable]]]()
        self._busy = list[tuple[int, int]]()
        """Heap: when the outermost slice of a line ends, and the line."""
        self._free = list[int]()
        self._open = dict[Hashable, tuple[int, int]]()
        """Slices on a line: that line, and their end."""

    def place(
        self,
        start_ns: int,
        end_ns: int,
        key: Hashable,
        parent: Hashable = None,
        *,
        within_any: bool = False,
    ) -> int:
        """Number of the line, from 0.

        Inside another slice lies only what has that one as its parent, or, with ``within_any``,
        what has a parent that is not on any line at the moment.

        Args:
            start_ns: Not before that of the slice placed last.
            end_ns: Not before the start.
            key: Names the slice.
            parent: Key of the slice around it, None for none.
            within_any: Whether a slice without a parent may lie in one that is around it in time.
        """
        while self._busy and self._busy[0][0] <= start_ns:
            number = heapq.heappop(self._busy)[1]
            self._end(number, start_ns)
            heapq.heappush(self._free, number)
        around = self._open.get(parent)
        if around is not None and around[1] > start_ns:
            lines: Iterable[int] = (around[0],)
        else:
            lines = sorted(line for _, line in self._busy) if within_any else ()
            parent = None
        for number in lines:
            self._end(number, start_ns)
            until_ns, other = self._stacks[number][-1]
            if parent in (None, other) and end_ns <= until_ns:
                break
        else:
            if not self._free:
                self._free.append(len(self._stacks))
                self._stacks.append([])
            number = heapq.heappop(self._free)
            heapq.heappush(self._busy, (end_ns, number))
        self._stacks[number].append((end_ns, key))
        self._open[key] = number, end_ns
        return number

    def _end(self, number: int, time_ns: int) -> None:
        """Take off a line what has ended."""
        stack = self._stacks[number]
        while stack and stack[-1][0] <= time_ns:
            self._open.pop(stack.pop()[1], None)
