"""How far what counts up came, from one moment at which that is known to the next."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from math import isnan
from operator import lt

from rlvr_probe.model.readings import Readings

__all__ = ["Total"]


@dataclass(slots=True)
class Total:
    """What one counter rose by, over windows that follow one another.

    It goes on where nobody reads it: what it rose by meanwhile belongs to the window in which it is
    known again. Readings of before the window may be forgotten, as they are while a run goes on.

    Attributes:
        rose: Together, in its unit; what it rose by around a fall is not in it.
        edge: Begin or end of a window at which it was known last, ns, and what it said then; None
            if there was none since it fell or began anew.
        read: Its last reading.
    """

    rose: float = 0.0
    edge: tuple[int, float] | None = None
    read: float | None = None

    def take(
        self, readings: Readings, name: str, start_ns: int, end_ns: int
    ) -> tuple[int, float] | None:
        """Since when, ns, it rose by how much until the end of the next window; None if unknown."""
        fell = self._fell(readings, name, start_ns, end_ns)
        before = self.edge
        if before is None:
            said = readings.at(name, start_ns)
            before = None if said is None else (start_ns, said)
        if fell:
            before = None
        now = readings.at(name, end_ns)
        self.edge = before if now is None else (end_ns, now)
        if before is None or now is None:
            return None
        since_ns, said = before
        rose = max(0.0, now - said)
        self.rose += rose
        return since_ns, rose

    def _fell(self, readings: Readings, name: str, start_ns: int, end_ns: int) -> bool:
        """Whether it fell or began anew in the window."""
        times, column = readings.times_ns, readings.columns[name]
        first = (bisect_left if self.read is None else bisect_right)(times, start_ns)
        inside = column[first : bisect_right(times, end_ns)]
        known = [] if self.read is None else [self.read]
        known += [value for value in inside if not isnan(value)]
        if known:
            self.read = known[-1]
        return any(map(lt, known[1:], known)) or readings.began_anew(start_ns, end_ns)
