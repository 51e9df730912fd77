"""By which factor a stage takes longer in one run than in another, for as many tokens.

Times and tokens are compared as logarithms, so that a factor is a difference. How a time follows
tokens is seen within each run alone: between the two it may be the very change that is asked for.
What that leaves is the noise: runs differ by chance as much as their steps do, and as parts of one
run differ from each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, pstdev
from typing import Final

from rlvr_probe.analysis.causes.baselines import ENOUGH, EXPLAINS, TO_SIGMA, slopes

__all__ = ["Shift", "shift_of"]

_PRIOR: Final = (0.5, 0.35)
"""How a time follows tokens before a run is looked at: between not at all, 0, and in proportion, 1;
mean and standard deviation."""

_OF_A_TOKEN: Final = (0.0, 0.25)
"""The same of the time of one token: little, but what attention takes grows with lengths."""

_UNSEEN: Final = 0.5
"""What follows other lengths without being seen within a run: that share of what a fit leaves."""

_AT_LEAST: Final = 0.1
"""And that share of it, however well a fit explains a run."""

_UNKNOWN: Final = 2.0
"""The same where it is not known to follow tokens: in proportion, or against it."""

_FAR: Final = 2.5
"""Standard deviations from the median beyond which a step counts as if it were that far."""

_FEW: Final = 1.0
"""What a spread is widened by for few steps: that many standard errors of it."""

_PARTS: Final = 5
"""Parts of a run whose levels are compared with each other."""


@dataclass(frozen=True, slots=True)
class Shift:
    """What differs between two runs, as factors.

    Attributes:
        times: How much longer it takes for as many tokens.
        error: Standard error of its logarithm.
        lengths: How much longer it takes because its tokens differ.
        left: Of each step after, the logarithm of how much longer it took.
    """

    times: float
    error: float
    lengths: float
    left: Sequence[float]

    def interval(self, sigmas: float) -> tuple[float, float]:
        """What the factor lies between, that many standard errors on either side."""
        width = math.exp(sigmas * self.error)
        return self.times / width, self.times * width


def shift_of(
    before: Sequence[float],
    after: Sequence[float],
    tokens: Sequence[tuple[Sequence[float], Sequence[float]]] = (),
    *,
    follows: bool = True,
    of_a_token: bool = False,
) -> Shift | None:
    """How much longer steps take after than before; None where one side has too few.

    Args:
        before: Time of each step of the one, above 0.
        after: The same of the other.
        tokens: Kinds of tokens that it may follow, above 0, of the steps before and of those after.
        follows: Whether it is known to follow them, as decoding does.
        of_a_token: Whether it is the time of one.
    """
    if min(len(before), len(after)) < ENOUGH:
        return None
    sides = [[math.log(time) for time in side] for side in (before, after)]
    kinds = [
        [[math.log(count) for count in side] for side in kind]
        for kind in tokens
        if min(map(min, kind)) > 0
    ]
    first, spread = _difference(sides), _spread(_centred(sides))
    errors, moved, whole = list[float](), 0.0, spread
    prior = _OF_A_TOKEN if of_a_token else _PRIOR
    while kinds:
        fits = [_Fit.of(kind, sides, prior) for kind in kinds]
        best = min(range(len(fits)), key=lambda at: fits[at].spread)
        fit = fits[best]
        if errors and fit.spread > EXPLAINS * spread:
            break
        sides, spread, more = fit.left, fit.spread, _difference(kinds.pop(best))
        errors.append(fit.error * more)
        moved = max(moved, abs(more))
    unexplained = min(1.0, spread / whole) if whole else 1.0
    if of_a_token:  # it need not follow any
        unexplained = 0.0
    unseen = max(_AT_LEAST, unexplained) if follows else _UNKNOWN
    errors.append(_UNSEEN * moved * unseen)
    error = math.hypot(*errors, *(_error(side) for side in sides))
    level, longer = _level(sides[0]), _difference(sides)
    left = [value - level for value in sides[1]]
    return Shift(math.exp(longer), error, math.exp(first - longer), left)


@dataclass(frozen=True, slots=True)
class _Fit:
    """How times follow one kind of tokens.

    Attributes:
        left: Logarithms of the times without it.
        spread: Of these, within each run.
        error: Standard error of the exponent.
    """

    left: list[list[float]]
    spread: float
    error: float

    @classmethod
    def of(
        cls, kind: list[list[float]], sides: list[list[float]], prior: tuple[float, float]
    ) -> _Fit:
        slope, error = _slope(kind, sides, prior)
        left = [
            [y - slope * x for x, y in zip(xs, ys, strict=True)]
            for xs, ys in zip(kind, sides, strict=True)
        ]
        return cls(left, _spread(_centred(left)), error)


def _slope(
    kind: list[list[float]], sides: list[list[float]], prior: tuple[float, float]
) -> tuple[float, float]:
    """The exponent by which times follow tokens within runs, and its standard error."""
    found = [slope for xs, ys in zip(kind, sides, strict=True) for slope in slopes(xs, ys)]
    mean, deviation = prior
    if not found:
        return mean, deviation
    slope = median(found)
    tokens = _centred(kind)
    pairs = zip(_centred(sides), tokens, strict=True)
    noise = _spread([y - slope * x for y, x in pairs])
    error = max(noise / (pstdev(tokens) * math.sqrt(len(tokens))), 1e-6)
    weight, before = error**-2, deviation**-2
    return (weight * slope + before * mean) / (weight + before), (weight + before) ** -0.5


def _difference(sides: Sequence[Sequence[float]]) -> float:
    before, after = sides
    return _level(after) - _level(before)


def _level(values: Sequence[float]) -> float:
    return fmean(_tamed(values))


def _tamed(values: Sequence[float]) -> list[float]:
    """The values, those far off as near as the others are."""
    middle = median(values)
    far = _FAR * _spread([value - middle for value in values])
    return [min(max(value, middle - far), middle + far) for value in values]


def _error(values: Sequence[float]) -> float:
    """Standard error of the level of a run, of which one step resembles the next."""
    tamed, count = _tamed(values), len(values)
    level = fmean(tamed)
    off = [value - level for value in tamed]
    square = math.fsum(value * value for value in off)
    if not square:
        return 0.0
    alike = math.fsum(a * b for a, b in pairwise(off)) / square
    alike = min(max(alike, 0.0), 0.9)
    widened = math.sqrt((1 + alike) / (1 - alike)) * (1 + _FEW / math.sqrt(count))
    steps = math.sqrt(square / (count - 1) / count) * widened
    size = max(2, count // _PARTS)
    parts = [fmean(tamed[at : at + size]) for at in range(0, count - size + 1, size)]
    return max(steps, pstdev(parts) / math.sqrt(len(parts) - 1)) if len(parts) > 1 else steps


def _centred(sides: Sequence[Sequence[float]]) -> list[float]:
    """Of both runs, how far each value is from the middle of its run."""
    return [value - middle for side in sides for middle in [median(side)] for value in side]


def _spread(values: Sequence[float]) -> float:
    """Standard deviation around 0, as the middle of the values has it."""
    return TO_SIGMA * median(abs(value) for value in values)
