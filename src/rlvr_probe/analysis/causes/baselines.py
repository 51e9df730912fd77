"""What a step of a run should take, by its other steps: for as many tokens, and before it grew.

A *ratio* is the time of a step by what robust lines through all steps give for as many tokens; of
the kinds of tokens that are known, those count that lessen its jitter. Where the end of the run
exceeds its start by more than noise, the stage has grown: at once, or ever more, which is what
fits better. Else the usual ratio is that of the median step, and longer is what exceeds it
by more than the noise of the run: steps one after another together, others each for itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from statistics import median
from typing import Final, Literal

from rlvr_probe.analysis.causes.thresholds import GREW, LONGER, SIGMAS

__all__ = [
    "ENOUGH", "EXPLAINS", "TO_SIGMA", "Excess", "change_of", "excess", "excess_of_few", "expected",
    "line", "noise_of", "slope", "slopes", "window",
]  # fmt: skip

ENOUGH: Final = 6
"""Steps from which on it is known what is usual."""

_POINTS: Final = 60
"""Steps that a robust line is drawn through, at most: its cost grows with their square."""

TO_SIGMA: Final = 1.4826
"""Standard deviation by median absolute deviation, of normal noise."""

_FEW: Final = 3.0
"""What a spread is widened by for few steps: that many standard errors of a spread."""

_NEARLY: Final = 0.75
"""Share of the steps of a window that take longer."""

_APART: Final = 2.0
"""By how many times what usual steps lie apart others are further off, whatever the noise."""

_TRIES: Final = 3
"""How many times it is asked which steps are usual, given those."""

_WINDOW: Final = 3
"""Fewest steps one after another that are looked at together."""

_RARELY: Final = 4
"""Fewest occasions that show what is usual of what takes place in some steps alone."""

_HALF: Final = 1.5
"""By that factor some of so few are longer."""

_CLEAR: Final = 4.0
"""By how many times what the values of a side lie apart, the sides do."""

_STRAIGHT: Final = 8.0
"""By how many times what any of so few is off a line, it rises."""

EXPLAINS: Final = 0.8
"""Tokens explain times if they leave that share of their jitter, or less."""


@dataclass(frozen=True, slots=True)
class Excess:
    """What steps took longer than their baseline.

    Attributes:
        ns: Of every step, 0 of the usual ones.
        form: ``since`` a step, ``growing`` from step to step, or in ``some`` steps.
        first: Index of the first longer step.
        before, now: Ratios: the usual one; and of the last step, of what has grown, else the median
            of those steps.
    """

    ns: Sequence[float]
    form: Literal["since", "growing", "some"]
    first: int
    before: float
    now: float

    @property
    def times(self) -> float:
        """By which factor they are longer; infinite where it grows from nothing."""
        return self.now / self.before if self.before else math.inf


def expected(ns: Sequence[float], tokens: Sequence[Sequence[float]]) -> list[float]:
    """What each step should take, by lines through the tokens that explain the times best, ns.

    Args:
        ns: Of every step, above 0.
        tokens: Kinds of tokens, each with a number for every step; none where time follows none.
    """
    fit, spread = _fitted(ns, [median(ns)] * len(ns))
    for _ in tokens:
        left = [time - usual for time, usual in zip(ns, fit, strict=True)]
        lines = [
            [usual + rest for usual, rest in zip(fit, line(counts, left), strict=True)]
            for counts in tokens
        ]
        positive = [_fitted(ns, fit) for fit in lines if min(fit) > 0]
        better, least = min(positive, key=lambda fitted: fitted[1], default=(fit, spread))
        if least > EXPLAINS * spread:
            break
        fit, spread = better, least
    return fit


def _fitted(ns: Sequence[float], fit: list[float]) -> tuple[list[float], float]:
    """A fit, and the jitter of the times by it."""
    return fit, _jitter([time / usual for time, usual in zip(ns, fit, strict=True)])


def excess(ns: Sequence[float], usual: Sequence[float], since: int = 1) -> Excess | None:
    """What exceeds the baseline by more than noise; None if nothing does.

    Args:
        ns: Of every step in their order.
        usual: As :func:`expected`.
        since: Steps from the start of the run to the first of these: what grows from step to step
            has grown since then.
    """
    if len(ns) < ENOUGH:
        return None
    ratios = [time / value for time, value in zip(ns, usual, strict=True)]
    return _grown(ns, ratios, since) or window(ns, usual) or _some(ns, ratios)


def excess_of_few(ns: Sequence[float]) -> Excess | None:
    """The same of what takes place too rarely to know its noise.

    Some take half as long again as the others, and exceed them by four times what those lie apart:
    the last ones, or half of them at most, and not the first alone: that warms up. Or they lie on
    a line: none is off it by more than an eighth of its rise.

    Args:
        ns: Of four occasions or more, above 0.
    """
    if len(ns) < _RARELY:
        return None
    before = _ranges(ns)
    after = _ranges(ns[::-1])[::-1]
    for first in range(1, len(ns) - 1):
        if _are_apart(before[first - 1], after[first]):
            return _above(ns, before[first - 1][1], "since")
    least = sorted(ns)
    for count in range((len(ns) + 1) // 2, len(ns)):
        shortest, longest = least[count], least[-1]
        if 2 * count > len(ns):
            longest = shortest  # they may lie apart themselves
        if count == len(ns) - 1 and ns[0] == shortest:
            break
        if _are_apart((least[0], least[count - 1]), (shortest, longest)):
            return _above(ns, least[count - 1], "some")
    fit = line(range(len(ns)), ns)
    off = max(abs(value - usual) for value, usual in zip(ns, fit, strict=True))
    if fit[-1] >= _HALF * fit[0] > 0 and fit[-1] - fit[0] >= _STRAIGHT * off:
        over = [max(0.0, value - fit[0]) for value in ns]
        return Excess(over, "growing", 0, fit[0], fit[-1])
    return None


def _ranges(values: Sequence[float]) -> list[tuple[float, float]]:
    """Least and most of these up to each."""
    return list(zip(accumulate(values, min), accumulate(values, max), strict=True))


def _are_apart(usual: tuple[float, float], longer: tuple[float, float]) -> bool:
    """Whether the range of longer ones is far above that of the others."""
    gap, width = longer[0] / usual[1], max(usual[1] / usual[0], longer[1] / longer[0])
    return gap >= _HALF and math.log(gap) >= _CLEAR * math.log(width)


def _above(ns: Sequence[float], limit: float, form: Literal["since", "some"]) -> Excess:
    longer = [value for value in ns if value > limit]
    level = median(value for value in ns if value <= limit)
    over = [value - level if value > limit else 0.0 for value in ns]
    return Excess(over, form, ns.index(longer[0]), level, median(longer))


def noise_of(ns: Sequence[float], usual: Sequence[float]) -> float:
    """Standard deviation of the logarithm of times by what is expected, wide for few steps.

    Args:
        ns: Of every step, one at least.
        usual: As :func:`expected`.
    """
    logs = [math.log(time / value) for time, value in zip(ns, usual, strict=True)]
    return _jitter(logs) * (1 + _FEW / math.sqrt(len(logs)))


def _grown(ns: Sequence[float], ratios: Sequence[float], since: int) -> Excess | None:
    first = change_of(ratios)
    level = median(ratios[:first])
    step = [level] * first + [median(ratios[first:])] * (len(ratios) - first)
    straight = line(range(len(ratios)), ratios)
    growing = _distance(ratios, straight) < _distance(ratios, step)
    fit = straight if growing else step
    noise = _spread([ratio - value for ratio, value in zip(ratios, fit, strict=True)])
    noise *= 1 + _FEW / math.sqrt(len(ratios))
    base = max(0.0, fit[0] - since * (fit[1] - fit[0])) if growing else fit[0]
    least = SIGMAS * noise * math.sqrt(6 / len(ratios))
    if fit[-1] < GREW * base or fit[-1] - fit[0] < least:
        return None
    over = [
        time * (1 - base / ratio) if growing or index >= first else 0.0
        for index, (time, ratio) in enumerate(zip(ns, ratios, strict=True))
    ]
    if growing:
        return Excess(over, "growing", 0, base, fit[-1])
    return Excess(over, "since", first, base, fit[-1])


def _some(ns: Sequence[float], ratios: Sequence[float]) -> Excess | None:
    # Up to two in five may be slow; few of the others show their noise badly. Real machines are
    # late more often than early: what lies below the level alone would show too little of it.
    usual, limit, level = sorted(ratios)[: math.ceil(0.6 * len(ratios))], 0.0, 0.0
    for _ in range(_TRIES):
        level = median(usual)
        off = [abs(math.log(ratio / level)) for ratio in usual]
        noise = TO_SIGMA * median(off) * (1 + _FEW / math.sqrt(len(ratios)))
        limit = level * max(LONGER, math.exp(SIGMAS * noise))
        usual = [ratio for ratio in ratios if ratio <= limit]
    limit = min(limit, _gap(ratios))
    longer = [ratio > limit for ratio in ratios]
    if not any(longer):
        return None
    over = [
        time * (1 - level / ratio) if long else 0.0
        for time, ratio, long in zip(ns, ratios, longer, strict=True)
    ]
    which = median(ratio for ratio, long in zip(ratios, longer, strict=True) if long)
    return Excess(over, "some", longer.index(True), level, which)


def _gap(ratios: Sequence[float]) -> float:
    """The largest of the others, where some are further from it than all of these lie apart."""
    logs = sorted(map(math.log, ratios))
    for last in range(math.ceil(0.6 * len(logs)) - 1, len(logs) - 1):
        apart = max(math.log(LONGER), _APART * (logs[last] - logs[0]))
        if logs[last + 1] - logs[last] >= apart:
            return math.exp(logs[last] + apart / 2)
    return math.inf


def window(ns: Sequence[float], usual: Sequence[float], least: float = GREW) -> Excess | None:
    """Steps one after another that take longer together, each of them within the noise or not.

    Args:
        ns: Of every step.
        usual: As :func:`expected`.
        least: By which factor they do, where noise is small.
    """
    if len(ns) < ENOUGH:
        return None
    logs = [math.log(time / value) for time, value in zip(ns, usual, strict=True)]
    level = median(logs)
    sums = list(accumulate((value - level for value in logs), initial=0.0))
    stride = max(1, len(logs) // _POINTS)
    windows = [
        (first, last)
        for first in range(0, len(logs), stride)
        for last in range(first + _WINDOW, min(len(logs), first + len(logs) // 2) + 1, stride)
    ]
    if not windows:
        return None
    place = max(windows, key=lambda at: (sums[at[1]] - sums[at[0]]) / math.sqrt(at[1] - at[0]))
    first, last = place
    rest = logs[:first] + logs[last:]
    if len(rest) < ENOUGH:
        return None
    level, noise = median(rest), _spread(rest) * (1 + _FEW / math.sqrt(len(rest)))
    longer = median(logs[first:last]) - level
    if longer < max(math.log(least), SIGMAS * noise / math.sqrt(last - first)):
        return None
    if sum(value > level + longer / 2 for value in logs[first:last]) < _NEARLY * (last - first):
        return None
    left = math.exp(-longer)
    over = [time * (1 - left) if first <= index < last else 0.0 for index, time in enumerate(ns)]
    return Excess(over, "some", first, math.exp(level), math.exp(level + longer))


def change_of(ratios: Sequence[float]) -> int:
    """Index from which on another level fits best; both sides have a sixth of the steps, or 3."""
    least = min(len(ratios) // 2, max(3, len(ratios) // 6))

    def off(at: int) -> float:
        return _scatter(ratios[:at]) + _scatter(ratios[at:])

    first, last = least, len(ratios) - least
    stride = max(1, (last - first) // _POINTS)
    near = min(range(first, last + 1, stride), key=off)
    while stride > 1:
        around = max(first, near - stride), min(last, near + stride)
        stride = max(1, stride // 10)
        near = min(range(around[0], around[1] + 1, stride), key=off)
    return near


def _scatter(ratios: Sequence[float]) -> float:
    level = median(ratios)
    return math.fsum(abs(ratio - level) for ratio in ratios)


def _distance(ratios: Sequence[float], fit: Sequence[float]) -> float:
    return math.fsum(abs(ratio - value) for ratio, value in zip(ratios, fit, strict=True))


def _spread(values: Sequence[float]) -> float:
    level = median(values)
    return TO_SIGMA * median(abs(value - level) for value in values)


def _jitter(values: Sequence[float]) -> float:
    """Standard deviation about their level, or from each to the next where that is less.

    A level that grows, or changes at once, is omitted: tokens that happen to change with it would
    explain it. Slow steps and growth have to exceed a spread: on a slow machine a step resembles
    the next one.
    """
    moves = [(after - before) / math.sqrt(2) for before, after in pairwise(values)]
    return min(_spread(values), TO_SIGMA * median(map(abs, moves))) if moves else 0.0


def line(xs: Sequence[float], ys: Sequence[float]) -> list[float]:
    """A line after Theil and Sen, at each of ``xs``; it does not fall."""
    rise = slope(xs, ys)
    start = median(y - rise * x for x, y in zip(xs, ys, strict=True))
    return [start + rise * x for x in xs]


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Median slope between two points, after Theil and Sen; at least 0."""
    found = slopes(xs, ys)
    return max(0.0, median(found)) if found else 0.0


def slopes(xs: Sequence[float], ys: Sequence[float]) -> list[float]:
    """Slopes between two points, of as many as its cost allows."""
    stride = -(-len(xs) // _POINTS)
    points = list(zip(xs[::stride], ys[::stride], strict=True))
    return [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x1 != x2]
