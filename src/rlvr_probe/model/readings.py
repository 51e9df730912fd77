"""Sums over a span of time of what was read of one device at one pace."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from math import inf, isnan
from operator import add, lt, mul, sub
from typing import TypeAlias

from rlvr_probe.model.reading_columns import AWAY, ReadingColumns

__all__ = ["Readings", "Summed"]

_Run: TypeAlias = "tuple[array[int], array[float]]"


@dataclass(frozen=True, slots=True)
class Summed:
    """Mean and maximum of what was read of a span, and how much of it that is, ns."""

    mean: float | None
    maximum: float | None
    covered_ns: float


class Readings(ReadingColumns):
    """Readings, and what counters did between two moments."""

    def __init__(self, period_ns: int) -> None:
        """Hold none; they are taken every ``period_ns`` until :meth:`pace` changes that."""
        super().__init__(period_ns)
        self._falls: dict[str, tuple[int, array[int]]] = {}

    def follow(self, other: ReadingColumns, *, same: bool = True) -> None:
        """See :class:`ReadingColumns`."""
        super().follow(other, same=same)
        self._falls.clear()

    # ---------------------------------------------------------------- totals

    def difference(self, name: str, start_ns: int, end_ns: int) -> float | None:
        """What a counter rose by from ``start_ns`` to ``end_ns``; None if that is not known."""
        start, end = self._around(name, start_ns), self._around(name, end_ns)
        if start is None or end is None or self._went_back(name, start[0], end[1]):
            return None
        return self._at(name, end, end_ns) - self._at(name, start, start_ns)

    def at(self, name: str, time_ns: int) -> float | None:
        """What a counter said at a moment; None if that is not known."""
        around = self._around(name, time_ns)
        return None if around is None else self._at(name, around, time_ns)

    def began_anew(self, start_ns: int, end_ns: int) -> bool:
        """Whether counters started anew (a boot) after ``start_ns`` and until ``end_ns``."""
        return any(start_ns < self.times_ns[place] <= end_ns for place in self._anew)

    def rise(self, name: str, start_ns: int, end_ns: int) -> tuple[float, int] | None:
        """What a counter rose by meanwhile, as far as it was read, and in how much time, ns.

        An end at which it was not read is moved to the next reading inside; None without two.
        Intervals that end with a reading where it fell, or started anew, do not count.
        """
        times, column = self.times_ns, self.columns[name]
        places = range(bisect_left(times, start_ns), bisect_right(times, end_ns))
        if self._around(name, start_ns) is None:
            start_ns = next((times[at] for at in places if not isnan(column[at])), end_ns)
        if self._around(name, end_ns) is None:
            end_ns = next((times[at] for at in reversed(places) if not isnan(column[at])), start_ns)
        cuts = sorted(
            at for found in (self._fallen(name), self._anew) for at in found if at in places
        )
        begins = [start_ns, *(times[at] for at in cuts)]
        ends = [*(times[self._known(name, at - 1, -1) or 0] for at in cuts), end_ns]
        parts = [
            (self.difference(name, begin, end), end - begin)
            for begin, end in zip(begins, ends, strict=True)
            if begin < end
        ]
        known = [(amount, length) for amount, length in parts if amount is not None]
        return (sum(a for a, _ in known), sum(length for _, length in known)) if known else None

    def rates(self, name: str, time_ns: int) -> tuple[Sequence[float], int] | None:
        """Rise per ns of a counter around a moment, and ns between the readings on either side.

        That between them, and, where they are known, those of the intervals before and after.
        """
        inside = self._around(name, time_ns)
        if inside is None:
            return None
        left, right = inside
        pairs = (self._interval(name, left, -1), inside, self._interval(name, right, 1))
        rates = [
            self._rate(name, *pair) for pair in pairs if pair is not None and pair[0] < pair[1]
        ]
        return rates, self.times_ns[right] - self.times_ns[left]

    def _rate(self, name: str, left: int, right: int) -> float:
        column, times = self.columns[name], self.times_ns
        return (column[right] - column[left]) / (times[right] - times[left])

    def _at(self, name: str, between: tuple[int, int], time_ns: int) -> float:
        """A counter at a moment between two readings.

        Stages start and end with a step of power or traffic, and their edges are what is asked for:
        where the rates before and after allow one step between the two readings, that is taken,
        else a straight line.
        """
        left, right = between
        column = self.columns[name]
        if left == right:
            return column[left]
        passed = time_ns - self.times_ns[left]
        rate = self._rate(name, left, right)
        outer = self._interval(name, left, -1), self._interval(name, right, 1)
        if outer[0] is not None and outer[1] is not None:
            before, after = self._rate(name, *outer[0]), self._rate(name, *outer[1])
            if min(before, after) < rate < max(before, after):
                length = self.times_ns[right] - self.times_ns[left]
                step = length * (rate - after) / (before - after)
                return column[left] + before * min(passed, step) + after * max(0, passed - step)
        return column[left] + rate * passed

    def _interval(self, name: str, place: int, direction: int) -> tuple[int, int] | None:
        """The interval that a reading ends (-1) or starts (1); None across a gap."""
        other = self._known(name, place + direction, direction)
        if other is None:
            return None
        left, right = min(place, other), max(place, other)
        return (left, right) if self._is_whole(name, left, right) else None

    def _is_whole(self, name: str, left: int, right: int) -> bool:
        """Whether a counter is known between two readings: read often enough, and never back."""
        apart = self.times_ns[right] - self.times_ns[left]
        return apart <= self._limit(right) and not self._went_back(name, left, right)

    def _around(self, name: str, time_ns: int) -> tuple[int, int] | None:
        """Readings on either side of a moment, the same one if it was then; None across a gap."""
        at = bisect_left(self.times_ns, time_ns)
        right = self._known(name, at, 1)
        if right is not None and self.times_ns[right] == time_ns:
            return right, right
        left = self._known(name, at - 1, -1)
        if left is None or right is None or not self._is_whole(name, left, right):
            return None
        return left, right

    def _known(self, name: str, place: int, direction: int) -> int | None:
        """The nearest reading of a counter from ``place`` on, at most so far away as it counts."""
        column = self.columns[name]
        for _ in range(AWAY + 1):
            if not 0 <= place < len(column):
                return None
            if not isnan(column[place]):
                return place
            place += direction
        return None

    def _went_back(self, name: str, left: int, right: int) -> bool:
        """Whether a counter fell, or started anew, after reading ``left`` and until ``right``."""
        for places in (self._fallen(name), self._anew):
            at = bisect_right(places, left)
            if at < len(places) and places[at] <= right:
                return True
        return False

    def _fallen(self, name: str) -> array[int]:
        """Readings of a counter that are lower than the one before."""
        column = self.columns[name]
        seen, falls = self._falls.get(name, (0, array("Q")))
        if seen < len(column):
            before = self._known(name, seen - 1, -1)
            values = column[seen if before is None else before :]
            # Comparing with NaN is false, and a fall may hide behind one.
            if isnan(sum(values)) or any(map(lt, islice(values, 1, None), values)):
                last = -inf
                for place in range(len(column) - len(values), len(column)):
                    if column[place] < last:
                        falls.append(place)
                    if not isnan(column[place]):
                        last = column[place]
            self._falls[name] = (len(column), falls)
        return falls

    # ---------------------------------------------------------------- means

    def window(self, name: str, start_ns: int, end_ns: int) -> Summed | None:
        """Mean of shares over a span, each weighted by how much of its window lies in it."""
        column, times, windows = self.columns[name], self.times_ns, self.windows_ns
        first = bisect_right(times, start_ns)
        last = bisect_left(times, end_ns)
        total = covered = 0.0
        # The windows that may reach over an end: they touch, so there is one at either.
        for place in {first, last}:
            if place < len(times) and not isnan(column[place]):
                begin = max(start_ns, times[place] - windows[place])
                inside = max(0, min(end_ns, times[place]) - begin)
                total += column[place] * inside
                covered += inside
        values, weights = column[first + 1 : last], windows[first + 1 : last]
        between = sum(map(mul, values, weights))
        if isnan(between):
            known = [(v, w) for v, w in zip(values, weights, strict=True) if not isnan(v)]
            between = sum(v * w for v, w in known)
            covered += sum(w for _, w in known)
        else:
            covered += sum(weights)
        if not covered:
            return None
        inside_values = column[first : bisect_right(times, end_ns)]
        return Summed((total + between) / covered, _largest(inside_values), covered)

    def gauge(self, name: str, start_ns: int, end_ns: int) -> Summed | None:
        """Mean over a span of readings joined by straight lines, without gaps."""
        first, last = bisect_left(self.times_ns, start_ns), bisect_right(self.times_ns, end_ns)
        left, right = self._known(name, first - 1, -1), self._known(name, last, 1)
        begin = first if left is None else left
        end = last if right is None else right + 1
        area = covered = 0.0
        for times, values in self._runs(name, begin, end):
            area += _area(times, values)
            inside_ns = times[-1] - times[0]
            for outside in (_before(times, values, start_ns), _after(times, values, end_ns)):
                area -= outside[0]
                inside_ns -= outside[1]
            covered += inside_ns
        if covered <= 0:
            return None
        return Summed(area / covered, _largest(self.columns[name][first:last]), covered)

    def _runs(self, name: str, begin: int, end: int) -> Iterator[_Run]:
        """Known readings from place ``begin`` to ``end``, two or more without a gap between."""
        times, values = self.times_ns[begin:end], self.columns[name][begin:end]
        places: Sequence[int] = range(begin, end)
        if isnan(sum(values)):
            places = [place for place, value in zip(places, values, strict=True) if value == value]
            times = array("q", (self.times_ns[place] for place in places))
            values = array("d", (self.columns[name][place] for place in places))
        if len(times) < 2:
            return
        limit = AWAY * min(self._period(begin), *self._periods[self._pace_of(begin) :])
        cuts = [0, len(times)]
        if max(map(sub, islice(times, 1, None), times)) > limit:
            late = (
                at
                for at in range(1, len(times))
                if times[at] - times[at - 1] > self._limit(places[at])
            )
            cuts[1:1] = late
        for cut, following in pairwise(cuts):
            if following - cut > 1:
                yield times[cut:following], values[cut:following]


def _area(times: array[int], values: array[float]) -> float:
    """Integral of straight lines between readings, unit x ns."""
    apart = map(sub, islice(times, 1, None), times)
    doubled: float = sum(map(mul, map(add, values, islice(values, 1, None)), apart))
    return doubled / 2


def _before(times: array[int], values: array[float], start_ns: int) -> tuple[float, int]:
    """Integral and length of what lies before ``start_ns``: part of the first line at most."""
    length = max(0, start_ns - times[0])
    slope = (values[1] - values[0]) / (times[1] - times[0])
    return (values[0] + slope * length / 2) * length, length


def _after(times: array[int], values: array[float], end_ns: int) -> tuple[float, int]:
    """Integral and length of what lies after ``end_ns``: part of the last line at most."""
    length = max(0, times[-1] - end_ns)
    slope = (values[-1] - values[-2]) / (times[-1] - times[-2])
    return (values[-1] - slope * length / 2) * length, length


def _largest(values: array[float]) -> float | None:
    if isnan(sum(values)):
        return max((value for value in values if value == value), default=None)
    return max(values, default=None)
