"""Contract of a source of device counters: one module and one entry-point line each.

A backend knows one vendor's library. It says which devices there are, reads the counters of
``rlvr_probe.model.counters`` that they have, and names the reason for each that they lack.
It is used by one thread of a process beside the training, and never inside of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from rlvr_probe.model.counters import Pace

__all__ = ["GROUP", "Backend", "Device", "Fault", "Reading", "Touch", "What", "touch_all"]

GROUP = "rlvr_probe.devices"
"""Entry-point group of backends, our own and third parties' alike."""

What = Literal["xid", "lost", "reset_required", "unresponsive"]

Touch = Callable[[str], bool]
"""Called with a part of a node, by a name of its own, before it is asked for anything, in case that
it never answers. Where it returns False, that part is left alone."""


def touch_all(place: str) -> bool:
    """The :data:`Touch` that leaves nothing alone."""
    return True


@dataclass(frozen=True, slots=True)
class Device:
    """A device as it was found.

    Attributes:
        uuid: Its own name, the same in every container and process, never an index.
        kind: What it is.
        vendor: Of the backend: ``nvidia``.
        model: Name of the product.
        driver: Version of its driver, None if it has none.
        parent: Of a part of a GPU (MIG): the uuid of the whole.
        memory_limit_b: Memory that it has, bytes; None if it does not say.
        absent: Counters that it lacks, of those that devices of its kind have, each with the
            reason in a few words.
        place: Name by which the backend asked before it touched the device; a part of a GPU has
            that of the whole. Empty: its uuid.
    """

    uuid: str
    kind: Literal["gpu", "host"]
    vendor: str
    model: str
    driver: str | None = None
    parent: str | None = None
    memory_limit_b: int | None = None
    absent: Mapping[str, str] = field(default_factory=dict)
    place: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """An error that the driver reports.

    Attributes:
        uuid: Of the device.
        what: ``lost``: it answers no more. ``reset_required``: same, until somebody resets it.
            ``xid``: the driver noted an error of it, or of a program on it. ``unresponsive``: a
            call for it did not return.
        code: Number of the driver: of the XID, or of the error of the call; None if it gave none.
    """

    uuid: str
    what: What
    code: int | None


@dataclass(frozen=True, slots=True)
class Reading:
    """What one device gave at one moment.

    Attributes:
        time_ns: CLOCK_MONOTONIC at the middle of the call that read the counters that count up.
        window_s: What counters of kind ``window`` are the mean of, seconds, ending at ``time_ns``;
            None if there is none in it. Windows of successive readings touch.
        values: By name of the counter. One that failed is not in it.
        absent: Every counter that the device lacks as far as known now, with the reason, as
            in :class:`Device`; None if that is as before. One that merely failed this time is not
            in it.
        fault: Why nothing could be read: the device is lost. Given in every reading until it is
            back.
    """

    time_ns: int
    window_s: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    absent: Mapping[str, str] | None = None
    fault: Fault | None = None


@runtime_checkable
class Backend(Protocol):
    """One vendor's library. The entry point names a class that is made without arguments.

    Attributes:
        name: ``nvidia``, ``host``.
        why: After :meth:`devices`: why there are no devices, or which could not be opened; None if
            there is nothing to say.
        is_here: After :meth:`devices`: whether there is such hardware or a driver for it.
            Without, ``why`` is not reported.
    """

    name: str
    why: str | None
    is_here: bool

    def devices(self, touch: Touch = touch_all) -> Sequence[Device]:
        """Every device, opened. Empty where there is no such hardware, driver or library.

        Called once. What a device lacks may turn out in its first readings only.
        Never raises.

        Args:
            touch: Asked before each device, or each whole that has several, is touched.
        """
        ...

    def read(self, device: Device, pace: Pace) -> Reading:
        """The counters of ``device`` of one pace. Never raises; what failed is not in it."""
        ...

    def faults(self, timeout_s: float) -> Sequence[Fault]:
        """Errors reported since the last call; waits at most ``timeout_s`` seconds for one."""
        ...

    def close(self) -> None:
        """Let go of the library. Nothing is called afterwards."""
        ...


_STRIKES = 3
_PAUSE_NS = 60_000_000_000


class CounterSupport:
    """What is known of the counters of one device.

    A counter that was refused for good is never asked for again. One that failed three times in a
    row is left alone for a minute at a time.

    Attributes:
        absent: Reason for each counter that the device lacks, as far as known.
    """

    def __init__(self) -> None:
        self.absent: dict[str, str] = {}
        self._strikes: dict[str, int] = {}
        self._again_ns: dict[str, int] = {}

    def wants(self, name: str, now_ns: int) -> bool:
        """Whether to ask for a counter now."""
        return name not in self.absent or now_ns >= self._again_ns.get(name, now_ns + 1)

    def gave(self, name: str) -> None:
        """The device gave it."""
        if name in self._strikes:
            del self._strikes[name]
            self._again_ns.pop(name, None)
            self.absent.pop(name, None)

    def refuse(self, name: str, reason: str) -> None:
        """The device never gives it."""
        self.absent[name] = reason
        self._again_ns.pop(name, None)

    def fail(self, name: str, reason: str, now_ns: int) -> None:
        """The device did not give it this time."""
        self._strikes[name] = self._strikes.get(name, 0) + 1
        if self._strikes[name] >= _STRIKES:
            self.absent[name] = f"{reason}; asked again each minute"
            self._again_ns[name] = now_ns + _PAUSE_NS
