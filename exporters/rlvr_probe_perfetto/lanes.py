"""Puts slices of one process side by side, so that those on one line lie inside one another.

Viewers drop, or draw wrong, slices of a thread that overlap without nesting. What a process did at
the same time, in threads or coroutines, is known to be concurrent only by its times and parents.
"""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["Lanes"]


class Lanes:
    """Lines of one process; a slice is put on the first that it fits."""

    def __init__(self) -> None:
        """Have none."""
        self._open: list[list[tuple[int, Hashable]]] = []

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
        for stack in self._open:
            while stack and stack[-1][0] <= start_ns:
                stack.pop()
        known = parent is not None and any(
            other == parent for stack in self._open for _, other in stack
        )
        free = None
        for number, stack in enumerate(self._open):
            if not stack:
                free = number if free is None else free
                continue
            around_ns, other = stack[-1]
            related = other == parent if known else within_any
            if related and end_ns <= around_ns:
                stack.append((end_ns, key))
                return number
        if free is None:
            free = len(self._open)
            self._open.append([])
        self._open[free].append((end_ns, key))
        return free
