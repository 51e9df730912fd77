"""Quantiles, and how far a metric may be off: 95 % intervals.

Quantiles are with linear interpolation between the values: what numpy does by default, and
``quantile_cont`` of DuckDB, by which sections ask.

The trajectories of a group answer one prompt and are not independent samples. Their *design
effect* says how much they depend: the variance of a sum over groups, over what it would be if every
trajectory were drawn on its own. ``n / design effect`` is the effective number of trajectories.
Groups are taken to be independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from statistics import fmean, median
from typing import Final

__all__ = [
    "Interval",
    "binomial_ranks",
    "block_bootstrap",
    "design_effect",
    "jackknife",
    "mean_interval",
    "quantile",
    "share_interval",
    "student",
    "theil_sen",
]

Interval = tuple[float | None, float | None]
"""Low and high end; None where the data do not bound it."""

_Z: Final = 1.959963984540054
_STUDENT: Final = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571}
_EXACT: Final = 1_000.0
"""Variance of a binomial from which on it is taken for a normal distribution."""
_POINTS: Final = 400
"""Points of a trend; longer series are averaged piece by piece: it looks at every pair."""
_DRAWS: Final = 2_000
"""Draws of a bootstrap."""


def student(freedom: int) -> float:
    """97.5 % quantile of Student's distribution; infinite without a degree of freedom."""
    if freedom < 1:
        return math.inf
    if freedom in _STUDENT:
        return _STUDENT[freedom]
    z = _Z
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def design_effect(squares: float, groups: int, count: int, share: float) -> float:
    """Of a share of trajectories, at least 1.

    Args:
        squares: Sum over groups of ``(members that are - share * members) ** 2``.
        groups: Number of groups.
        count: Number of trajectories.
        share: Of those that are.
    """
    alone = count * share * (1 - share)
    if groups < 2 or alone <= 0:
        return 1.0
    return max(1.0, squares * groups / (groups - 1) / alone)


def mean_interval(mean: float, squares: float, groups: int, count: int) -> Interval:
    """Of a mean over trajectories, from its groups (linearized, Student's t).

    Args:
        mean: Of the trajectories.
        squares: Sum over groups of ``(sum - mean * members) ** 2``.
        groups: Number of groups.
        count: Number of trajectories.
    """
    if groups < 2:
        return None, None
    half = student(groups - 1) * math.sqrt(squares * groups / (groups - 1)) / count
    return mean - half, mean + half


def share_interval(share: float, count: float) -> Interval:
    """Of a share of ``count`` effective trajectories, after Wilson."""
    if count < 1:
        return None, None
    z = _Z**2 / count
    centre = (share + z / 2) / (1 + z)
    half = math.sqrt(share * (1 - share) / count * _Z**2 + z**2 / 4) / (1 + z)
    return max(0.0, centre - half), min(1.0, centre + half)


def binomial_ranks(count: float, share: float) -> Interval:
    """Between which quantiles of a sample the true quantile ``share`` lies.

    How many of ``n`` samples are below the true quantile follows a binomial, so that it lies
    between two order statistics whatever the distribution is. They are given as quantiles, 0..1,
    of linear interpolation; None where not even the smallest or largest sample is far enough out.

    Args:
        count: Effective number of samples.
        share: Which quantile, 0..1.
    """
    n = int(count)
    if n < 2:
        return None, None
    low = _binomial_quantile(n, share, 0.025)
    high = _binomial_quantile(n, share, 0.975) + 1
    # Quantile h of linear interpolation is order statistic 1 + h (n - 1).
    return ((low - 1) / (n - 1) if low >= 1 else None, (high - 1) / (n - 1) if high <= n else None)


def _binomial_quantile(n: int, p: float, level: float) -> int:
    """The smallest k with at least ``level`` of the distribution at or below it."""
    mean, variance = n * p, n * p * (1 - p)
    if variance > _EXACT:
        z = _Z if level > 0.5 else -_Z
        return round(mean + z * math.sqrt(variance))
    at = max(0, math.floor(mean - 12 * math.sqrt(variance) - 12))
    logs = math.lgamma(n + 1) - math.lgamma(at + 1) - math.lgamma(n - at + 1)
    mass = math.exp(logs + at * math.log(p) + (n - at) * math.log1p(-p))
    total = mass
    while total < level and at < n:
        mass *= (n - at) / (at + 1) * p / (1 - p)
        at += 1
        total += mass
    return at


def jackknife(
    blocks: Sequence[Sequence[float]], figure: Callable[[Sequence[float]], float | None]
) -> Interval:
    """Of a metric made of sums over groups, by omitting one block of groups after another.

    Args:
        blocks: The sums of each block.
        figure: Makes the metric from sums; None where it cannot.
    """
    whole = [sum(column) for column in zip(*blocks, strict=True)]
    value = figure(whole) if blocks else None
    without = [
        figure([total - own for total, own in zip(whole, block, strict=True)]) for block in blocks
    ]
    known = [value for value in without if value is not None]
    count = len(known)
    if value is None or count < len(blocks) or count < 2:
        return None, None
    mean = sum(known) / count
    variance = (count - 1) / count * sum((value - mean) ** 2 for value in known)
    half = student(count - 1) * math.sqrt(variance)
    return value - half, value + half


def block_bootstrap(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Of the ratio of the sum of the seconds to that of the firsts, by a moving-block bootstrap.

    A step resembles the one before it, so that blocks of neighbours are drawn: of as many steps as
    the cube root of their number, the last followed by the first. The draws are always the same.

    Args:
        pairs: Of each step in its order, its two values; the firsts above 0.
    """
    count = len(pairs)
    size = round(count ** (1 / 3))
    around = [*pairs, *pairs[: size - 1]]
    blocks = [[sum(column) for column in zip(*around[at : at + size], strict=True)]
              for at in range(count)]  # fmt: skip
    random = Random(count)
    draws = (random.choices(blocks, k=-(-count // size)) for _ in range(_DRAWS))
    ratios = sorted(sum(b for _, b in drawn) / sum(a for a, _ in drawn) for drawn in draws)
    return quantile(ratios, 0.025), quantile(ratios, 0.975)


def theil_sen(points: Sequence[tuple[float, float]]) -> tuple[float | None, Interval]:
    """Slope of a series that outliers do not move, and Sen's interval of it.

    The median of the slopes of all pairs. The interval is of Kendall's statistic; it takes the
    points to be independent of each other.

    Args:
        points: Time and value of each. Of more than 400, means of neighbours are taken.
    """
    points = _thinned(sorted(points))
    slopes = sorted(
        (y2 - y1) / (x2 - x1)
        for i, (x1, y1) in enumerate(points)
        for x2, y2 in points[i + 1 :]
        if x2 > x1
    )
    if not slopes:
        return None, (None, None)
    count, pairs = len(points), len(slopes)
    width = _Z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low, high = math.floor((pairs - width) / 2) - 1, math.ceil((pairs + width) / 2)
    if low < 0 or high >= pairs:
        return median(slopes), (None, None)
    return median(slopes), (slopes[low], slopes[high])


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    if len(points) <= _POINTS:
        return points
    edges = [index * len(points) // _POINTS for index in range(_POINTS + 1)]
    pieces = [points[start:end] for start, end in pairwise(edges)]
    return [(fmean(x for x, _ in piece), fmean(y for _, y in piece)) for piece in pieces]


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
