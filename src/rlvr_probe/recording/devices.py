"""What sidecars read of devices: rows, checked, and a series of each device joined of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Struct, convert

from rlvr_probe.model import names
from rlvr_probe.model.counters import Pace
from rlvr_probe.model.device_series import PERIOD_NS, DeviceFacts, DeviceFault, DeviceSeries
from rlvr_probe.model.readings import Readings
from rlvr_probe.recording.decode import Number

if TYPE_CHECKING:
    from rlvr_probe.recording.clock import RunClock
    from rlvr_probe.recording.processes import Recorded

__all__ = ["DEVICE_EVENTS", "DeviceRows", "ReadDevice", "devices_of", "join_devices", "unread"]

_NOTES: Final = 8

_UUID_CHARACTERS: Final = 40
"""``GPU-`` and 36 more; what is shorter is a prefix of one."""

_SHIFT_MAX: Final = 1 << 61


DEVICE_EVENTS: Final = frozenset(
    name.name for name in (names.DEVICE, names.DEVICE_FAULT, names.DEVICE_NOTE)
)
"""What is said of devices, and now and then."""

_KINDS: Final = ("gpu", "host")


class _Device(Struct):
    """A ``device`` event."""

    device: Number
    uuid: str
    kind: str = ""
    vendor: str = ""
    model: str = ""
    driver: str = ""
    parent: str | None = None
    memory_limit_b: Number | None = None
    hz: Annotated[float, Meta(ge=1e-3, le=1e3)] | None = None
    absent: Sequence[str] = ()


class _Fault(Struct):
    """A ``device_fault`` event."""

    what: str
    code: Number | None = None


@dataclass(slots=True)
class ReadDevice:
    """One device in the journal of one sidecar; times are CLOCK_MONOTONIC, ns."""

    facts: DeviceFacts
    readings: dict[Pace, Readings] = field(default_factory=dict)
    faults: list[DeviceFault] = field(default_factory=list)

    def of_pace(self, pace: Pace) -> Readings:
        """Its readings of a pace."""
        found = self.readings.get(pace)
        if found is None:
            found = self.readings[pace] = Readings(self.period_ns(pace))
        return found

    def add(
        self,
        pace: Pace,
        times_ns: Sequence[int],
        columns: Mapping[str, Sequence[float | None]],
        windows_s: Sequence[float | None],
    ) -> None:
        """Take readings of the counters of a pace, those of a slow one where something is known."""
        if pace != "fast":
            rows = zip(*columns.values(), strict=True)
            known = [row.count(None) < len(row) for row in rows]
            times_ns = list(compress(times_ns, known))
            columns = {name: list(compress(column, known)) for name, column in columns.items()}
        if times_ns:
            windows_ns = [None if s is None else round(s * 1e9) for s in windows_s]
            self.of_pace(pace).extend(times_ns, columns, windows_ns)

    def period_ns(self, pace: Pace) -> int:
        """Time between two readings of a pace, as last recorded."""
        fast = PERIOD_NS["fast"] if self.facts.hz is None else round(1e9 / self.facts.hz)
        return fast if pace == "fast" else max(fast, PERIOD_NS[pace])

    @property
    def start_ns(self) -> int:
        """Its first reading; 0 if there is none."""
        return min(
            (readings.times_ns[0] for readings in self.readings.values() if len(readings)),
            default=0,
        )


class DeviceRows:
    """What one process recorded of devices.

    Attributes:
        notes: Why something other than a device is not read.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._by_number: dict[int, ReadDevice] = {}
        self._by_uuid: dict[str, ReadDevice] = {}

    def __bool__(self) -> bool:
        return bool(self._by_uuid)

    def devices(self) -> list[ReadDevice]:
        """Every device, in recorded order."""
        return list(self._by_uuid.values())

    def event(self, name: str, time_ns: int, values: dict[str, Any]) -> None:
        """Take an event whose name is in :data:`DEVICE_EVENTS`; no reading waits.

        Raises:
            UNSOUND: It breaks the schema.
        """
        if name == names.DEVICE_NOTE.name:
            self.notes.append(convert(values["text"], str))
        elif name == names.DEVICE.name:
            self._describe(convert(values, _Device))
        else:
            device, fault = self.numbered(values["device"]), convert(values, _Fault)
            device.faults.append(DeviceFault(time_ns, fault.what, fault.code))

    def numbered(self, number: Any) -> ReadDevice:
        """The device that has this number by now.

        Raises:
            UNSOUND: There is none.
        """
        return self._by_number[convert(number, int)]

    def _describe(self, row: _Device) -> None:
        facts = DeviceFacts(
            uuid=row.uuid,
            kind=row.kind if row.kind in _KINDS else "",
            vendor=row.vendor,
            model=row.model,
            driver=row.driver,
            parent=row.parent,
            memory_limit_b=row.memory_limit_b,
            hz=row.hz,
            absent=_reasons(row.absent),
            number=row.device,
        )
        device = self._by_uuid.get(row.uuid)
        if device is None:
            device = self._by_uuid[row.uuid] = ReadDevice(facts)
        device.facts = facts
        self._by_number[row.device] = device
        for pace, readings in device.readings.items():
            readings.pace(device.period_ns(pace))


def _reasons(absent: Sequence[str]) -> dict[str, str]:
    """Reasons by counter, of texts ``counter: reason``."""
    pairs = (text.partition(": ") for text in absent)
    return {counter: reason for counter, _, reason in pairs}


def join_devices(sidecars: Sequence[Recorded], clock: RunClock) -> list[DeviceSeries]:
    """What all sidecars read, one series per device, on the clock of the run.

    Uses the rows up. Where two sidecars read a device at the same time, the one that started
    first counts until its end.
    """
    by_uuid: dict[str, list[tuple[int, Recorded, ReadDevice]]] = {}
    for sidecar in sidecars:
        if abs(clock.at(sidecar, 0)) >= _SHIFT_MAX:
            sidecar.journal.skipped["bad_time"] += 1
            continue
        for device in sidecar.journal.devices.devices():
            start_ns = clock.at(sidecar, device.start_ns)
            by_uuid.setdefault(device.facts.uuid, []).append((start_ns, sidecar, device))
    series = [_series(sorted(parts, key=lambda part: part[0]), clock) for parts in by_uuid.values()]
    return sorted(
        series, key=lambda device: (device.facts.host, device.facts.number or 0, device.uuid)
    )


def _series(parts: Sequence[tuple[int, Recorded, ReadDevice]], clock: RunClock) -> DeviceSeries:
    readings = dict[Pace, Readings]()
    faults = list[DeviceFault]()
    boot: str | None = None
    for _, sidecar, device in parts:
        for pace, rows in device.readings.items():
            rows.shift(clock.at(sidecar, 0))
            before = readings.setdefault(pace, rows)
            if before is not rows:
                before.follow(rows, same=sidecar.header.clock == boot)
        faults += (
            replace(fault, time_ns=clock.at(sidecar, fault.time_ns)) for fault in device.faults
        )
        boot = sidecar.header.clock
    _, last, device = parts[-1]
    facts = replace(device.facts, host=last.header.host, boot=last.header.boot)
    return DeviceSeries(facts, readings, sorted(faults, key=lambda fault: fault.time_ns))


def unread(sidecars: Sequence[Recorded]) -> list[str]:
    """What sidecars say that they cannot read, each once, with where that is."""
    hosts = dict[str, set[str]]()
    for sidecar in sidecars:
        for text in sidecar.journal.devices.notes:
            hosts.setdefault(text, set()).add(sidecar.header.host)
    reasons = [
        f"{text} ({min(found) if len(found) == 1 else f'{len(found)} hosts'})"
        for text, found in hosts.items()
    ]
    more = len(reasons) - _NOTES
    return [*reasons[:_NOTES], *([f"{more} more of devices that cannot be read"] * (more > 0))]


def devices_of(process: Recorded, series: Sequence[DeviceSeries]) -> tuple[str, ...] | None:
    """Names of the devices that a process worked on; None unless all of them are known.

    A prefix of a name is completed from the devices of its node, else from those of any node; a
    number is that of a whole GPU in the order of the PCI bus.
    """
    used = process.journal.used
    if used is None:
        return None
    here = [device for device in series if device.facts.boot == process.header.boot]
    found = [_named(token, here) or _named(token, series) for token in used.uuids]
    return tuple(found) if all(found) else None  # type: ignore[arg-type]


def _named(token: str, series: Sequence[DeviceSeries]) -> str | None:
    if token.isdecimal():
        gpus = [
            device
            for device in series
            if device.facts.kind == "gpu" and device.facts.parent is None
        ]
        place = int(token)
        return gpus[place].uuid if place < len(gpus) else None
    fitting = [device.uuid for device in series if device.uuid.startswith(token)]
    if len(fitting) == 1 or token in fitting:
        return token if token in fitting else fitting[0]
    return token if len(token) >= _UUID_CHARACTERS else None
