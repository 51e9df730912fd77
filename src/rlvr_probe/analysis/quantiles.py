"""Quantiles, as every figure has them: with linear interpolation between the values.

What numpy does by default, and ``quantile_cont`` of DuckDB, by which chapters ask.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul
from typing import Final, Protocol

__all__ = ["SHARES", "distribution", "distribution_of", "quantile"]

SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class _Ordered(Protocol):
    """Values in ascending order."""

    def __len__(self) -> int: ...
    def __getitem__(self, place: int, /) -> float: ...


class _Repeated:
    """Values in ascending order, each of them a number of times."""

    def __init__(self, counts: Mapping[int, int]) -> None:
        self._values = sorted(counts)
        self._ends = list(accumulate(map(counts.__getitem__, self._values)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, place: int, /) -> int:
        return self._values[bisect_right(self._ends, place)]


def quantile(ordered: _Ordered, share: float) -> float:
    """The value that ``share`` of them lie below.

    Args:
        ordered: Values in ascending order, at least one.
        share: 0..1.
    """
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def distribution(ordered: Sequence[float]) -> dict[str, float] | None:
    """Mean, quantiles and maximum of values in ascending order; None if there are none."""
    return _distribution(ordered, sum(ordered)) if ordered else None


def distribution_of(counts: Mapping[int, int]) -> dict[str, float] | None:
    """The same of values by how often each is there; at least once."""
    if not counts:
        return None
    return _distribution(_Repeated(counts), sum(map(mul, counts.keys(), counts.values())))


def _distribution(ordered: _Ordered, total: float) -> dict[str, float]:
    quantiles = {name: quantile(ordered, share) for name, share in SHARES.items()}
    return {"mean": total / len(ordered), **quantiles, "max": ordered[len(ordered) - 1]}
