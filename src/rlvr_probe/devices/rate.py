"""How often devices are read: as often as asked for, unless reading takes too much of the time."""

from __future__ import annotations

__all__ = ["MAX_HZ", "MIN_HZ", "Rate"]

MIN_HZ = 0.2
MAX_HZ = 9.0
"""NVML's windows are to be longer than 100 ms."""

_SHARE = 0.2
"""Of a period that reading may take, all devices together."""

_ROUNDS = 2
"""So many periods in a row above it: a single call may take long once in a while."""

_PATIENCE_NS = 30_000_000_000
_MAX_PATIENCE_NS = 3_600_000_000_000


class Rate:
    """The period in effect. It doubles where it must, and is tried again after a while.

    Attributes:
        period_ns: Time from one reading of a device to the next.
    """

    def __init__(self, hz: float) -> None:
        """Begin with the rate asked for.

        Args:
            hz: 0.2 to 9.

        Raises:
            ValueError: It is outside of that.
        """
        if not MIN_HZ <= hz <= MAX_HZ:
            raise ValueError(f"{hz} readings per second; expected {MIN_HZ} to {MAX_HZ}")
        self._asked_ns = round(1e9 / hz)
        self._longest_ns = max(self._asked_ns, round(1e9 / MIN_HZ))
        self.period_ns = self._asked_ns
        self._round_ns = 0
        self._spent_ns = 0
        self._over = 0
        self._calm_ns = 0
        self._raised_ns: int | None = None
        self._patience_ns = _PATIENCE_NS

    @property
    def hz(self) -> float:
        """Readings of a device per second."""
        return 1e9 / self.period_ns

    def begin(self, now_ns: int) -> None:
        """A period begins."""
        self._round_ns = now_ns
        self._spent_ns = 0
        self._over = 0

    def spent(self, spent_ns: int, now_ns: int) -> bool:
        """Whether the period changes, after reading took ``spent_ns``."""
        self._spent_ns += spent_ns
        passed = now_ns - self._round_ns
        if passed < self.period_ns:
            return False
        share = self._spent_ns / max(passed, self.period_ns)
        self._round_ns, self._spent_ns = now_ns, 0
        self._over = self._over + 1 if share > _SHARE else 0
        if self._over >= _ROUNDS and self.period_ns < self._longest_ns:
            return self._slow_down(now_ns)
        if self.period_ns == self._asked_ns or share > _SHARE / 4:
            # At half the period the share would double; that it may be again is no reason to try.
            self._calm_ns = now_ns
            return False
        if now_ns - self._calm_ns < self._patience_ns:
            return False
        self.period_ns = max(self.period_ns // 2, self._asked_ns)
        self._calm_ns = self._raised_ns = now_ns
        return True

    def _slow_down(self, now_ns: int) -> bool:
        if self._raised_ns is None or now_ns - self._raised_ns > 2 * self._patience_ns:
            self._patience_ns = _PATIENCE_NS
        else:
            self._patience_ns = min(2 * self._patience_ns, _MAX_PATIENCE_NS)
        self.period_ns = min(2 * self.period_ns, self._longest_ns)
        self._calm_ns = now_ns
        return True
