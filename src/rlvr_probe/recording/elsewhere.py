"""Reward functions that a process ran for others, one verification at a time.

Nothing says for whom, and there can be a million: only sums are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["WorkForOthers"]


class WorkForOthers:
    """Calls of reward functions that belong to no batch of their process, by function."""

    def __init__(self) -> None:
        """Hold none."""
        self._sums = dict[str, tuple[int, int, int, int]]()

    def add(
        self, start_ns: int, duration_ns: int, error: str | None, attributes: Mapping[str, Any]
    ) -> None:
        """Take one call."""
        function = attributes.get("function")
        name = function if isinstance(function, str) else ""
        calls, starts, total, errors = self._sums.get(name, (0, 0, 0, 0))
        self._sums[name] = (
            calls + 1,
            starts + start_ns,
            total + duration_ns,
            errors + (error is not None),
        )

    def __iter__(self) -> Iterator[tuple[str, int, int, int, int]]:
        """Function, calls, sums of their begins and durations, ns, and how many raised."""
        return ((name, *sums) for name, sums in self._sums.items())
