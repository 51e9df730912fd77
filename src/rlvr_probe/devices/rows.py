"""The event rows of one device: what it is, what it measured, what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlvr_probe.devices.backend import Device, Fault, Reading
from rlvr_probe.model.counters import BY_NAME, COUNTERS, Pace
from rlvr_probe.model.names import DEVICE, DEVICE_FAULT, DEVICE_SAMPLE, DEVICE_STATE, Name

__all__ = ["Define", "Row", "Rows"]

Row = list[Any]
Define = Callable[[Name, Sequence[str]], int]
"""Number of the layout of rows for a name with these attributes, as the journal's."""

_ORDER = {counter.name: place for place, counter in enumerate(COUNTERS)}
_DEVICE_ATTRIBUTES = tuple(attribute.name for attribute in DEVICE.attributes)
_FAULT_ATTRIBUTES = tuple(attribute.name for attribute in DEVICE_FAULT.attributes)


class Rows:
    """Makes rows of readings of one device, and remembers what is recorded of it.

    A row of values has one column for each counter that the device gave so far and that is not
    known to be absent.
    """

    def __init__(self, number: int, device: Device, define: Define, origin_ns: int) -> None:
        """Nothing is recorded yet.

        Args:
            number: Of the device in the journal.
            device: As it was found.
            define: Called before the first row of each layout.
            origin_ns: Times of rows count from there.
        """
        self._number = number
        self._device = device
        self._define = define
        self._origin_ns = origin_ns
        self._absent: Mapping[str, str] = device.absent
        self._lost: Fault | None = None
        self._fast: list[str] = []
        self._slow: list[str] = []

    def device(self, now_ns: int, hz: float) -> Row:
        """What it is, how often it is read, and what it lacks."""
        device = self._device
        absent = dict(self._absent)
        if self._lost is not None:
            why = self._lost.what.replace("_", " ")
            absent.update((name, why) for name in (*self._fast, *self._slow))
        return self._row(
            DEVICE,
            _DEVICE_ATTRIBUTES,
            now_ns,
            device.uuid,
            device.kind,
            device.vendor,
            device.model,
            device.driver,
            device.parent,
            device.memory_limit_b,
            round(hz, 3),
            [f"{name}: {absent[name]}" for name in sorted(absent, key=_place)],
        )

    def fault(self, fault: Fault, now_ns: int) -> Row:
        """An error that the driver reported."""
        return self._row(DEVICE_FAULT, _FAULT_ATTRIBUTES, now_ns, fault.what, fault.code)

    def readings(self, found: Mapping[Pace, Reading], now_ns: int, hz: float) -> list[Row]:
        """The values of one turn, after news of the device if there are any.

        Args:
            found: Readings of the turn by pace; those that failed are not in it.
            now_ns: Of the news.
            hz: How often the device is read.
        """
        rows: list[Row] = []
        lost = next(
            (reading.fault for reading in found.values() if reading.fault is not None), None
        )
        known = [reading.absent for reading in found.values() if reading.absent is not None]
        absent = known[-1] if known else self._absent
        if found and ((lost is None) != (self._lost is None) or absent != self._absent):
            self._lost, self._absent = lost, absent
            rows.extend([] if lost is None else [self.fault(lost, now_ns)])
            rows.append(self.device(now_ns, hz))
        fast = found.get("fast")
        if fast is not None and fast.values:
            names = self._columns(self._fast, fast.values)
            window_s = None if fast.window_s is None else round(fast.window_s, 4)
            values = (_rounded(name, fast.values.get(name)) for name in names)
            attributes = ("device", "window_s", *names)
            rows.append(self._row(DEVICE_SAMPLE, attributes, fast.time_ns, window_s, *values))
        states = [reading for pace, reading in found.items() if pace != "fast"]
        state = {name: value for reading in states for name, value in reading.values.items()}
        if state:
            names = self._columns(self._slow, state)
            values = (_rounded(name, state.get(name)) for name in names)
            rows.append(self._row(DEVICE_STATE, ("device", *names), states[0].time_ns, *values))
        return rows

    def _columns(self, told: list[str], values: Mapping[str, float]) -> Sequence[str]:
        new = [name for name in values if name in BY_NAME and name not in told]
        if new:
            told.extend(new)
            told.sort(key=_place)
        return [name for name in told if name not in self._absent]

    def _row(self, name: Name, attributes: Sequence[str], time_ns: int, *values: object) -> Row:
        number = self._define(name, attributes)
        return [number, time_ns - self._origin_ns, 0, self._number, *values]


def _place(name: str) -> int:
    return _ORDER.get(name, len(_ORDER))


def _rounded(name: str, value: float | None) -> float | None:
    """To what the driver resolves: a row is written five times a second."""
    if value is None or isinstance(value, int):
        return value
    return round(value, 4 if BY_NAME[name].unit == "1" else 3)
