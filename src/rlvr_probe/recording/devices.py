"""Joins what sidecars read of one device, and tells which process worked on which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rlvr_probe.model.counters import Pace
from rlvr_probe.model.devices import DeviceFault, DeviceSeries
from rlvr_probe.model.readings import Readings
from rlvr_probe.recording.clock import RunClock
from rlvr_probe.recording.devicerows import ReadDevice
from rlvr_probe.recording.load import Recorded

__all__ = ["devices_of", "join_devices", "unread"]

_NOTES: Final = 8

_UUID_CHARACTERS: Final = 40
"""``GPU-`` and 36 more; what is shorter is the beginning of one."""

_SHIFT_MAX: Final = 1 << 61


def join_devices(sidecars: Sequence[Recorded], clock: RunClock) -> list[DeviceSeries]:
    """What all sidecars read, one series per device, on the clock of the run.

    Uses the rows up. Where two sidecars read a device at the same time, the one that began first
    counts until its end.
    """
    found = dict[str, list[tuple[int, Recorded, ReadDevice]]]()
    for one in sidecars:
        if abs(clock.at(one, 0)) >= _SHIFT_MAX:
            one.journal.skipped["bad_time"] += 1
            continue
        for device in one.journal.devices.devices():
            begin_ns = clock.at(one, device.begin_ns)
            found.setdefault(device.facts.uuid, []).append((begin_ns, one, device))
    series = [_series(sorted(parts, key=lambda part: part[0]), clock) for parts in found.values()]
    return sorted(series, key=lambda one: (one.facts.host, one.facts.number or 0, one.uuid))


def _series(parts: Sequence[tuple[int, Recorded, ReadDevice]], clock: RunClock) -> DeviceSeries:
    readings = dict[Pace, Readings]()
    faults = list[DeviceFault]()
    boot: str | None = None
    for _, one, device in parts:
        for pace, rows in device.readings.items():
            rows.shift(clock.at(one, 0))
            before = readings.setdefault(pace, rows)
            if before is not rows:
                before.follow(rows, same=one.header.clock == boot)
        faults += (replace(fault, time_ns=clock.at(one, fault.time_ns)) for fault in device.faults)
        boot = one.header.clock
    _, last, device = parts[-1]
    facts = replace(device.facts, host=last.header.host, boot=last.header.boot)
    return DeviceSeries(facts, readings, sorted(faults, key=lambda fault: fault.time_ns))


def unread(sidecars: Sequence[Recorded]) -> list[str]:
    """What sidecars say that they cannot read, each once, with where that is."""
    hosts = dict[str, set[str]]()
    for one in sidecars:
        for text in one.journal.devices.notes:
            hosts.setdefault(text, set()).add(one.header.host)
    told = [
        f"{text} ({min(found) if len(found) == 1 else f'{len(found)} hosts'})"
        for text, found in hosts.items()
    ]
    more = len(told) - _NOTES
    return [*told[:_NOTES], *([f"{more} more of devices that cannot be read"] * (more > 0))]


def devices_of(one: Recorded, series: Sequence[DeviceSeries]) -> tuple[str, ...] | None:
    """Names of the devices that a process worked on; None if it is not known of all of them.

    A beginning of a name is completed by what its node has, or else by what any has; a number is
    that of a whole GPU in the order of the PCI bus.
    """
    told = one.journal.used
    if told is None:
        return None
    here = [device for device in series if device.facts.boot == one.header.boot]
    found = [_named(token, here) or _named(token, series) for token in told.uuids]
    return tuple(found) if all(found) else None  # type: ignore[arg-type]


def _named(token: str, series: Sequence[DeviceSeries]) -> str | None:
    if token.isdecimal():
        gpus = [one for one in series if one.facts.kind == "gpu" and one.facts.parent is None]
        place = int(token)
        return gpus[place].uuid if place < len(gpus) else None
    fitting = [one.uuid for one in series if one.uuid.startswith(token)]
    if len(fitting) == 1 or token in fitting:
        return token if token in fitting else fitting[0]
    return token if len(token) >= _UUID_CHARACTERS else None
