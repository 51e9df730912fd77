"""When which device is read, and the rows that come of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rlvr_probe import guard
from rlvr_probe.devices.backend import Backend, Device, Fault, Reading
from rlvr_probe.devices.rate import Rate
from rlvr_probe.model.counters import BY_NAME, COUNTERS, Pace
from rlvr_probe.model.names import DEVICE, DEVICE_FAULT, DEVICE_SAMPLE, DEVICE_STATE, Name

__all__ = ["Define", "Sampler"]

Row = list[Any]
Define = Callable[[Name, Sequence[str]], int]
"""Number of the layout of rows for a name with these attributes, as the journal's."""

_SLOW_NS = 1_000_000_000
_RARE_NS = 60_000_000_000
_FAULTS_S = 0.001
_ORDER = {counter.name: place for place, counter in enumerate(COUNTERS)}
_DEVICE_ATTRIBUTES = tuple(one.name for one in DEVICE.attributes)
_FAULT_ATTRIBUTES = tuple(one.name for one in DEVICE_FAULT.attributes)


@dataclass(slots=True)
class _Track:
    """One device: when it is read next, and what has been told of it.

    Attributes:
        number: Of the device in the journal.
        absent: Counters that it cannot tell, with the reason.
        told: Counters that it told so far, of the event of samples and of that of states.
        lost: What took it away, while it is away.
    """

    number: int
    backend: Backend
    device: Device
    absent: Mapping[str, str]
    due_ns: int = 0
    slow_ns: int = 0
    rare_ns: int = 0
    told: dict[str, list[str]] = field(default_factory=lambda: {"fast": [], "slow": []})
    lost: Fault | None = None


class Sampler:
    """Reads every device of ``backends``, each in its turn. Used by one thread.

    The devices are staggered over the period, so that their readings do not queue up at the driver.
    Where reading takes more than a fifth of the time, the period doubles for a while.

    Attributes:
        next_ns: CLOCK_MONOTONIC at which :meth:`tick` has something to do.
        devices: What was found; empty before the first tick.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        hz: float,
        define: Define,
        origin_ns: int,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Touch no device yet.

        Args:
            backends: Sources of counters; closed with the sampler.
            hz: How often the fast counters of a device are read, 0.2 to 9.
            define: Called before the first row of each layout.
            origin_ns: ``mono_ns`` of the journal's header: rows tell times from there on.
            clock: CLOCK_MONOTONIC, ns.
        """
        self._backends = backends
        self._rate = Rate(hz)
        self._define = define
        self._origin_ns = origin_ns
        self._clock = clock
        self._tracks: list[_Track] | None = None
        self.next_ns = self._faults_ns = clock()

    @property
    def devices(self) -> Sequence[Device]:
        """What was found; empty before the first tick."""
        return [track.device for track in self._tracks or ()]

    def tick(self, now_ns: int) -> list[Row]:
        """Read what is due, and return the event rows of it: ``[def, time, 0, *values]``.

        The first call opens and tells every device. Never raises.
        """
        rows: list[Row] = []
        if self._tracks is None:
            self._tracks = self._open()
            rows.extend(self._tell(track, now_ns) for track in self._tracks)
            # Opening a library takes long; it is not reading.
            self._begin(self._clock())
            return rows
        started = self._clock()
        for track in self._tracks:
            if track.due_ns <= now_ns:
                rows.extend(self._read(track, now_ns))
                track.due_ns += self._rate.period_ns * (
                    1 + (now_ns - track.due_ns) // self._rate.period_ns
                )
        if self._faults_ns <= now_ns:
            self._faults_ns = now_ns + _SLOW_NS
            rows.extend(self._faults(now_ns))
        if self._rate.spent(self._clock() - started, now_ns):
            rows.extend(self._tell(track, now_ns) for track in self._tracks)
            self._begin(now_ns)
        self.next_ns = self._next_ns()
        return rows

    def close(self) -> None:
        """Close the backends."""
        for backend in self._backends:
            guard.attempt(_close, backend, None)

    def _open(self) -> list[_Track]:
        found: list[tuple[Backend, Device]] = []
        for backend in self._backends:
            found.extend((backend, device) for device in guard.attempt(_devices, backend, ()))
        return [
            _Track(number, backend, device, device.absent)
            for number, (backend, device) in enumerate(found)
        ]

    def _begin(self, now_ns: int) -> None:
        """Spread the devices over the period that begins now."""
        self._rate.begin(now_ns)
        tracks = self._tracks or ()
        for place, track in enumerate(tracks):
            track.due_ns = now_ns + place * self._rate.period_ns // len(tracks)
        self.next_ns = self._next_ns()

    def _next_ns(self) -> int:
        return min((track.due_ns for track in self._tracks or ()), default=self._faults_ns)

    def _row(self, name: Name, attributes: Sequence[str], time_ns: int, *values: object) -> Row:
        return [self._define(name, attributes), time_ns - self._origin_ns, 0, *values]

    def _tell(self, track: _Track, now_ns: int) -> Row:
        device = track.device
        absent = dict(track.absent)
        if track.lost is not None:
            why = track.lost.what.replace("_", " ")
            absent.update((name, why) for names in track.told.values() for name in names)
        listed = [f"{name}: {absent[name]}" for name in sorted(absent, key=_place)]
        return self._row(
            DEVICE,
            _DEVICE_ATTRIBUTES,
            now_ns,
            track.number,
            device.uuid,
            device.kind,
            device.vendor,
            device.model,
            device.driver,
            device.parent,
            device.memory_limit_b,
            round(self._rate.hz, 3),
            listed,
        )

    def _read(self, track: _Track, now_ns: int) -> list[Row]:
        """Rows of one device that is due."""
        readings = {"fast": self._ask(track, "fast")}
        if track.slow_ns <= now_ns:
            track.slow_ns = now_ns + _SLOW_NS
            readings["slow"] = self._ask(track, "slow")
        if track.rare_ns <= now_ns:
            track.rare_ns = now_ns + _RARE_NS
            readings["rare"] = self._ask(track, "rare")
        rows: list[Row] = []
        told = [one for one in readings.values() if one is not None]
        if told and self._learn(track, told):
            rows.append(self._tell(track, now_ns))
            if track.lost is not None:
                rows.insert(0, self._fault_row(track.number, track.lost, now_ns))
        rows.extend(self._values(track, readings))
        return rows

    def _ask(self, track: _Track, pace: Pace) -> Reading | None:
        # Backends never raise; one of a third party may.
        found: Reading | None = guard.attempt(partial(track.backend.read, track.device), pace, None)
        return found

    def _learn(self, track: _Track, readings: Sequence[Reading]) -> bool:
        """Whether there is news of the device itself."""
        lost = next((one.fault for one in readings if one.fault is not None), None)
        known = [one.absent for one in readings if one.absent is not None]
        absent = known[-1] if known else track.absent
        news = (lost is None) != (track.lost is None) or absent != track.absent
        track.lost, track.absent = lost, absent
        return news

    def _values(self, track: _Track, readings: Mapping[str, Reading | None]) -> list[Row]:
        rows: list[Row] = []
        fast = readings["fast"]
        if fast is not None and fast.values:
            names = _columns(track, "fast", fast.values)
            window_s = None if fast.window_s is None else round(fast.window_s, 4)
            rows.append(
                self._row(
                    DEVICE_SAMPLE,
                    ("device", "window_s", *names),
                    fast.time_ns,
                    track.number,
                    window_s,
                    *(_rounded(name, fast.values.get(name)) for name in names),
                )
            )
        states = [readings[pace] for pace in ("slow", "rare") if readings.get(pace) is not None]
        values = {name: value for one in states if one for name, value in one.values.items()}
        if values:
            names = _columns(track, "slow", values)
            time_ns = next(one.time_ns for one in states if one)
            rows.append(
                self._row(
                    DEVICE_STATE,
                    ("device", *names),
                    time_ns,
                    track.number,
                    *(_rounded(name, values.get(name)) for name in names),
                )
            )
        return rows

    def _faults(self, now_ns: int) -> list[Row]:
        numbers = {track.device.uuid: track.number for track in self._tracks or ()}
        return [
            self._fault_row(numbers[fault.uuid], fault, now_ns)
            for backend in self._backends
            for fault in guard.attempt(_reported, backend, ())
            if fault.uuid in numbers
        ]

    def _fault_row(self, number: int, fault: Fault, now_ns: int) -> Row:
        return self._row(DEVICE_FAULT, _FAULT_ATTRIBUTES, now_ns, number, fault.what, fault.code)


def _devices(backend: Backend) -> Sequence[Device]:
    return backend.devices()


def _reported(backend: Backend) -> Sequence[Fault]:
    return backend.faults(_FAULTS_S)


def _close(backend: Backend) -> None:
    backend.close()


def _place(name: str) -> int:
    return _ORDER.get(name, len(_ORDER))


def _columns(track: _Track, event: str, values: Mapping[str, float]) -> Sequence[str]:
    """The counters in a row of a device: those that it told before, and these."""
    told = track.told[event]
    new = [name for name in values if name in BY_NAME and name not in told]
    if new:
        told.extend(new)
        told.sort(key=_place)
    return [name for name in told if name not in track.absent]


def _rounded(name: str, value: float | None) -> float | None:
    """To what the driver resolves: a row is written five times a second."""
    if value is None or isinstance(value, int):
        return value
    return round(value, 4 if BY_NAME[name].unit == "1" else 3)
