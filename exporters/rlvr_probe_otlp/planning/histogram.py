"""Histograms as OpenTelemetry defines them: bounds that follow the values, or fixed ones."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Final

from rlvr_probe_otlp.planning.data_model import Buckets, Snapshot

__all__ = ["ExplicitHistogram", "ExponentialHistogram", "bounds_of"]

_BUCKETS: Final = 160
_FINEST: Final = 20


class ExponentialHistogram:
    """Counts values that are not negative; the same values give the same buckets in any order."""

    def __init__(self) -> None:
        """Hold none."""
        self._scale = _FINEST
        self._counts = dict[int, int]()
        self._zero = 0
        self._values = 0
        self._sum = 0.0
        self._min, self._max = math.inf, -math.inf
        self._low = self._high = 0

    def extend(self, values: Sequence[float]) -> None:
        """Count values, at least one; a negative one counts as 0: a clock was set."""
        counted = values if min(values) >= 0.0 else [max(value, 0.0) for value in values]
        for value in counted:
            self._sum += value
        self._values += len(counted)
        self._min, self._max = min(self._min, min(counted)), max(self._max, max(counted))
        for value, times in Counter(counted).items():
            if value == 0.0:
                self._zero += times
            else:
                self._add(_index(value, self._scale), times)

    def _add(self, index: int, times: int) -> None:
        counts = self._counts
        if not counts:
            self._low = self._high = index
        elif index < self._low:
            self._low = index
        elif index > self._high:
            self._high = index
        counts[index] = counts.get(index, 0) + times
        if self._high - self._low >= _BUCKETS:
            self._coarsen()

    def _coarsen(self) -> None:
        """Halve the number of buckets until they are few enough."""
        shift = 0
        while (self._high >> shift) - (self._low >> shift) >= _BUCKETS:
            shift += 1
        self._scale -= shift
        self._low, self._high = self._low >> shift, self._high >> shift
        counts, self._counts = self._counts, {}
        for index, count in counts.items():
            self._counts[index >> shift] = self._counts.get(index >> shift, 0) + count

    def snapshot(self) -> Snapshot:
        """What was counted so far.

        Raises:
            ValueError: Nothing was.
        """
        if not self._values:
            raise ValueError("an empty histogram has no smallest value")
        low, high = (self._low, self._high) if self._counts else (0, -1)
        return Snapshot(
            count=self._values,
            sum=self._sum,
            min=self._min,
            max=self._max,
            scale=self._scale,
            zero=self._zero,
            offset=low,
            counts=tuple(self._counts.get(index, 0) for index in range(low, high + 1)),
        )


class ExplicitHistogram:
    """Counts values in buckets of fixed bounds, for receivers that know no other."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Hold none; ``bounds`` ascend."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._min, self._max = math.inf, -math.inf

    def extend(self, values: Sequence[float]) -> None:
        """Count values, at least one."""
        for value in values:
            self._counts[bisect_left(self._bounds, value)] += 1
            self._sum += value
        self._min, self._max = min(self._min, min(values)), max(self._max, max(values))

    def snapshot(self) -> Buckets:
        """What was counted so far."""
        count = sum(self._counts)
        return Buckets(count, self._sum, self._min, self._max, self._bounds, tuple(self._counts))


def bounds_of(unit: str) -> Sequence[float]:
    """Bounds for a unit, two in each power of 2: from 1 ms to 2.3 hours, or from 1 to a million."""
    if unit == "s":
        return [0.001 * 2 ** (half / 2) for half in range(47)]
    return [2 ** (half / 2) for half in range(41)]


def _index(value: float, scale: int) -> int:
    """Bucket of a positive value: the i with 2^(i/2^scale) < value <= 2^((i+1)/2^scale)."""
    exponent: int
    mantissa, exponent = math.frexp(value)
    # Powers of two are the upper bound of their bucket; a logarithm could miss that by a hair.
    if scale > 0 and mantissa != 0.5:
        return math.ceil(math.log2(mantissa) * (1 << scale)) + (exponent << scale) - 1
    if scale > 0:
        return ((exponent - 1) << scale) - 1
    return (exponent - (2 if mantissa == 0.5 else 1)) >> -scale
