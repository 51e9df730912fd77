"""Quantiles, as every figure has them: with linear interpolation between the values.

What numpy does by default, and ``quantile_cont`` of DuckDB, by which chapters ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["SHARES", "distribution", "quantile"]

SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def quantile(ordered: Sequence[float], share: float) -> float:
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
    if not ordered:
        return None
    quantiles = {name: quantile(ordered, share) for name, share in SHARES.items()}
    return {"mean": sum(ordered) / len(ordered), **quantiles, "max": ordered[-1]}
