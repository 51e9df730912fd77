"""When which device is read."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rlvr_probe import guard
from rlvr_probe.devices.backend import Backend, Device, Fault, Reading, Touch, touch_all
from rlvr_probe.devices.rows import Define, Row, Rows
from rlvr_probe.model.counters import Pace

__all__ = ["Rate", "Sampler"]

_SLOW_NS = 1_000_000_000
_RARE_NS = 60_000_000_000
_FAULTS_S = 0.001

_TURN_NS = 50_000_000
"""Turns are at least so far apart: waking up costs more than reading another device."""


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
        """Start with the rate asked for.

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
        """A period starts."""
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
            # Half the period doubles the share: above this it would come too close to the limit.
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


@dataclass(slots=True)
class _Track:
    """One device, and when it is read next."""

    backend: Backend
    device: Device
    rows: Rows
    slow_ns: int
    rare_ns: int
    due_ns: int = 0


class Sampler:
    """Reads every device of ``backends``, each in its turn. Used by one thread.

    The devices are staggered over the period, so that few readings at a time meet in the driver.
    Where reading takes more than a fifth of the time, the period doubles for a while.

    Attributes:
        next_ns: CLOCK_MONOTONIC at which :meth:`tick` has something to do.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        hz: float,
        define: Define,
        origin_ns: int,
        clock: Callable[[], int] = time.monotonic_ns,
        touch: Touch = touch_all,
    ) -> None:
        """Touch no device yet.

        Args:
            backends: Sources of counters; closed with the sampler.
            hz: How often the fast counters of a device are read, 0.2 to 9.
            define: Called before the first row of each layout.
            origin_ns: ``mono_ns`` of the journal's header: times of rows count from there.
            clock: CLOCK_MONOTONIC, ns.
            touch: Called with what is asked, before it is: a backend (``nvidia``), the place of a
                device, or what a driver reports (``nvidia events``).

        Raises:
            ValueError: ``hz`` is outside of that.
        """
        self._backends = backends
        self._rate = Rate(hz)
        self._define = define
        self._origin_ns = origin_ns
        self._clock = clock
        self._touch = touch
        self._tracks: list[_Track] | None = None
        self.next_ns = self._faults_ns = clock()

    @property
    def devices(self) -> Sequence[Device]:
        """What was found; empty before the first tick."""
        return [track.device for track in self._tracks or ()]

    def tick(self, now_ns: int) -> list[Row]:
        """Read what is due, and return the event rows of it: ``[def, time, 0, *values]``.

        The first call opens and records every device. Never raises.
        """
        if self._tracks is None:
            self._tracks = self._open()
            # Opening a library takes long; it is not reading.
            self._begin(self._clock())
            return self._describe(now_ns)
        rows: list[Row] = []
        started = self._clock()
        for track in self._tracks:
            if track.due_ns <= now_ns:
                rows.extend(self._read(track, now_ns))
                # Turns that were missed are not made up for.
                missed = (now_ns - track.due_ns) // self._rate.period_ns
                track.due_ns += (1 + missed) * self._rate.period_ns
        if self._faults_ns <= now_ns:
            self._faults_ns = now_ns + _SLOW_NS
            rows.extend(self._faults(now_ns))
        if self._rate.spent(self._clock() - started, now_ns):
            rows.extend(self._describe(now_ns))
            self._begin(now_ns)
        self.next_ns = self._next_ns()
        return rows

    def close(self) -> None:
        """Close the backends."""
        for backend in self._backends:
            guard.attempt(_close, backend, None)

    def _open(self) -> list[_Track]:
        tracks: list[_Track] = []
        for backend in filter(lambda backend: self._touch(backend.name), self._backends):
            for device in guard.attempt(partial(_devices, self._touch), backend, ()):
                rows = Rows(len(tracks), device, self._define, self._origin_ns)
                now = self._clock()
                tracks.append(_Track(backend, device, rows, now, now))
        return tracks

    def _begin(self, now_ns: int) -> None:
        """Spread the devices over the period that starts now."""
        self._rate.begin(now_ns)
        tracks = self._tracks or ()
        turns = max(1, min(len(tracks), self._rate.period_ns // _TURN_NS))
        for place, track in enumerate(tracks):
            turn = place * turns // len(tracks)
            track.due_ns = now_ns + turn * self._rate.period_ns // turns
        self.next_ns = self._next_ns()

    def _next_ns(self) -> int:
        return min((track.due_ns for track in self._tracks or ()), default=self._faults_ns)

    def _describe(self, now_ns: int) -> list[Row]:
        return [track.rows.device(now_ns, self._rate.hz) for track in self._tracks or ()]

    def _read(self, track: _Track, now_ns: int) -> list[Row]:
        """Rows of one device that is due."""
        paces: list[Pace] = ["fast"]
        # A turn that comes a moment early must not put these off to the next one.
        soon_ns = now_ns + self._rate.period_ns // 2
        if track.slow_ns <= soon_ns:
            track.slow_ns = _next(track.slow_ns, _SLOW_NS, now_ns)
            paces.append("slow")
        if track.rare_ns <= soon_ns:
            track.rare_ns = _next(track.rare_ns, _RARE_NS, now_ns)
            paces.append("rare")
        found: dict[Pace, Reading] = {}
        self._touch(track.device.place or track.device.uuid)
        for pace in paces:
            # Backends never raise; one of a third party may.
            reading = guard.attempt(partial(_reading, track), pace, None)
            if reading is not None:
                found[pace] = reading
        return track.rows.readings(found, now_ns, self._rate.hz)

    def _faults(self, now_ns: int) -> list[Row]:
        rows = {track.device.uuid: track.rows for track in self._tracks or ()}
        return [
            rows[fault.uuid].fault(fault, now_ns)
            for backend in self._backends
            if self._touch(f"{backend.name} events")
            for fault in guard.attempt(_reported, backend, ())
            if fault.uuid in rows
        ]


def _next(at_ns: int, every_ns: int, now_ns: int) -> int:
    """The next time after ``at_ns``; one that was missed is not made up for."""
    return at_ns + every_ns if at_ns + every_ns > now_ns else now_ns + every_ns


def _devices(touch: Touch, backend: Backend) -> Sequence[Device]:
    found: Sequence[object] = list(backend.devices(touch))
    devices = [device for device in found if isinstance(device, Device)]
    if len(devices) < len(found):
        raise TypeError
    return devices


def _reading(track: _Track, pace: Pace) -> Reading:
    found: object = track.backend.read(track.device, pace)
    if not isinstance(found, Reading) or not all(map(_is_number, found.values.values())):
        raise TypeError
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _reported(backend: Backend) -> Sequence[Fault]:
    return list(backend.faults(_FAULTS_S))


def _close(backend: Backend) -> None:
    backend.close()
