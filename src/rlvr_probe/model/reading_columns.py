"""Readings of one device at one pace, in columns of numbers."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import isnan, nan
from operator import lt, sub
from typing import Final

__all__ = ["AWAY", "ReadingColumns"]

AWAY: Final = 5
"""Periods without a reading after which nothing is said of the time between two."""


class ReadingColumns:
    """Values by time, one column per counter that was ever read; NaN in a column is absent.

    Attributes:
        times_ns: When each reading was taken, ascending.
        windows_ns: How far the shares of each reading reach back; never before the one before it.
        columns: Values by counter, as long as ``times_ns``.
    """

    def __init__(self, period_ns: int) -> None:
        """Hold none; they are taken every ``period_ns`` until :meth:`pace` changes that."""
        self.times_ns = array("q")
        self.windows_ns = array("q")
        self.columns: dict[str, array[float]] = {}
        self._anew = array("Q")
        """Readings of another boot than the one before: counters started anew."""
        self._since = [0]
        self._periods = [period_ns]

    def __len__(self) -> int:
        return len(self.times_ns)

    def pace(self, period_ns: int) -> None:
        """Readings from the next on are taken every ``period_ns``."""
        self._pace(len(self.times_ns), period_ns)

    def _pace(self, place: int, period_ns: int) -> None:
        if self._since[-1] >= place:
            self._periods[-1] = period_ns
        elif self._periods[-1] != period_ns:
            self._since.append(place)
            self._periods.append(period_ns)

    def add(self, time_ns: int, values: Mapping[str, float], window_ns: int | None = None) -> None:
        """Take one reading; one that is not later than the last is dropped.

        Args:
            time_ns: When.
            values: Those that are known.
            window_ns: What its shares are the mean of; unknown is since the reading before.
        """
        times, place = self.times_ns, len(self.times_ns)
        if window_ns is None:
            window_ns = time_ns - times[-1] if place else 0
            window_ns = window_ns if window_ns <= self._limit(place) else 0
        if place:
            since = time_ns - times[-1]
            if since <= 0:
                return
            window_ns = min(window_ns, since)
        times.append(time_ns)
        self.windows_ns.append(max(0, window_ns))
        for name, column in self.columns.items():
            column.append(values.get(name, nan))
        if not values.keys() <= self.columns.keys():
            for name in values.keys() - self.columns.keys():
                self.columns[name] = array("d", [nan]) * place
                self.columns[name].append(values[name])

    def extend(
        self,
        times_ns: Sequence[int],
        columns: Mapping[str, Sequence[float | None]],
        windows_ns: Sequence[int | None] | None = None,
    ) -> None:
        """Take readings as :meth:`add` takes one after another; None is absent."""
        rising = all(map(lt, times_ns, islice(times_ns, 1, None)))
        windows = windows_ns or [None] * len(times_ns)
        for place, time_ns in enumerate(times_ns):
            told = ((name, column[place]) for name, column in columns.items())
            held = len(self.times_ns)
            self.add(time_ns, {name: v for name, v in told if v is not None}, windows[place])
            # The others come after it, at one pace.
            if rising and len(self.times_ns) > held:
                rest = slice(place + 1, None)
                self._extend(
                    times_ns[rest],
                    {name: column[rest] for name, column in columns.items()},
                    windows[rest],
                )
                return

    def _extend(
        self,
        times_ns: Sequence[int],
        columns: Mapping[str, Sequence[float | None]],
        windows_ns: Sequence[int | None],
    ) -> None:
        place, limit_ns = len(self.times_ns), self._limit(len(self.times_ns))
        since = map(sub, times_ns, [self.times_ns[-1], *times_ns])
        self.times_ns.extend(times_ns)
        self.windows_ns.extend(
            (apart if apart <= limit_ns else 0) if window is None else max(0, min(window, apart))
            for apart, window in zip(since, windows_ns, strict=True)
        )
        absent = array("d", [nan])
        for name in self.columns.keys() | columns.keys():
            values = columns.get(name, ())
            known = len(values) - values.count(None)
            if name not in self.columns:
                if not known:
                    continue
                self.columns[name] = absent * place
            if known < len(values):
                values = [nan if value is None else value for value in values]
            self.columns[name].extend(values or absent * len(times_ns))  # type: ignore[arg-type]

    def follow(self, other: ReadingColumns, *, same: bool = True) -> None:
        """Take the readings of ``other`` that are later than the last of these.

        Args:
            other: Of another sidecar.
            same: Whether counters go on; else they started anew, however high they stand.
        """
        place = len(self.times_ns)
        skip = bisect_right(other.times_ns, self.times_ns[-1]) if place else 0
        if skip == len(other.times_ns):
            return
        self.times_ns.extend(other.times_ns[skip:])
        self.windows_ns.extend(other.windows_ns[skip:])
        if place:
            since = self.times_ns[place] - self.times_ns[place - 1]
            self.windows_ns[place] = min(self.windows_ns[place], since)
            if not same:
                self._anew.append(place)
        for at, period_ns in zip(other._since, other._periods, strict=True):
            self._pace(max(0, at - skip) + place, period_ns)
        for name in self.columns.keys() | other.columns.keys():
            column = self.columns.setdefault(name, array("d", [nan]) * place)
            theirs = other.columns.get(name)
            missing = len(self.times_ns) - place
            column.extend(array("d", [nan]) * missing if theirs is None else theirs[skip:])
        self._anew.extend(at - skip + place for at in other._anew if at > skip)

    def shift(self, shift_ns: int) -> None:
        """Add ``shift_ns`` to every time."""
        self.times_ns = array("q", (time_ns + shift_ns for time_ns in self.times_ns))

    def period_ns(self, time_ns: int) -> int:
        """Time between two readings at ``time_ns``."""
        return self._period(bisect_left(self.times_ns, time_ns))

    def count(self, start_ns: int, end_ns: int) -> int:
        """Readings from ``start_ns`` to ``end_ns``."""
        return bisect_right(self.times_ns, end_ns) - bisect_left(self.times_ns, start_ns)

    def points(self, name: str) -> Iterator[tuple[int, float]]:
        """Time and value of every reading of a counter."""
        pairs = zip(self.times_ns, self.columns.get(name, ()), strict=False)
        return ((time_ns, value) for time_ns, value in pairs if not isnan(value))

    def _pace_of(self, place: int) -> int:
        return bisect_right(self._since, place) - 1

    def _period(self, place: int) -> int:
        return self._periods[self._pace_of(place)]

    def _limit(self, place: int) -> int:
        """How long after the one before a reading may come, ns."""
        return AWAY * max(self._period(place), self._period(max(0, place - 1)))
