"""Which counters of one device are worth asking for, and why the others are not."""

from __future__ import annotations

__all__ = ["Standing"]

_STRIKES = 3
_PAUSE_NS = 60_000_000_000


class Standing:
    """What is known of the counters of one device.

    A counter that was refused for good is never asked for again. One that failed three times in a
    row is left alone for a minute at a time.

    Attributes:
        absent: Reason for each counter that the device cannot tell, as far as known.
    """

    def __init__(self) -> None:
        self.absent: dict[str, str] = {}
        self._strikes: dict[str, int] = {}
        self._again_ns: dict[str, int] = {}

    def wants(self, name: str, now_ns: int) -> bool:
        """Whether to ask for a counter now."""
        return name not in self.absent or now_ns >= self._again_ns.get(name, now_ns + 1)

    def told(self, name: str) -> None:
        """The device told it."""
        if name in self._strikes:
            del self._strikes[name]
            self._again_ns.pop(name, None)
            self.absent.pop(name, None)

    def refuse(self, name: str, reason: str) -> None:
        """The device will never tell it."""
        self.absent[name] = reason
        self._again_ns.pop(name, None)

    def fail(self, name: str, reason: str, now_ns: int) -> None:
        """The device did not tell it this time."""
        self._strikes[name] = self._strikes.get(name, 0) + 1
        if self._strikes[name] >= _STRIKES:
            self.absent[name] = f"{reason}; asked again each minute"
            self._again_ns[name] = now_ns + _PAUSE_NS
