"""Rows about devices, checked: what a sidecar read of them, and who works on which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, convert

from rlvr_probe.model import names
from rlvr_probe.model.counters import BY_NAME, Pace
from rlvr_probe.model.devices import PERIOD_NS, DeviceFacts, DeviceFault
from rlvr_probe.model.readings import Readings
from rlvr_probe.recording.decode import Number

__all__ = ["DEVICE_EVENTS", "DeviceRows", "ReadDevice"]

DEVICE_EVENTS: Final = frozenset(
    name.name
    for name in (
        names.DEVICE, names.DEVICE_SAMPLE, names.DEVICE_STATE, names.DEVICE_FAULT,
        names.DEVICE_NOTE,
    )
)  # fmt: skip

_PACES: Final[Mapping[str, tuple[Pace, ...]]] = {
    names.DEVICE_SAMPLE.name: ("fast",),
    names.DEVICE_STATE.name: ("slow", "rare"),
}
_KINDS: Final = ("gpu", "host")
_COUNTERS: Final[Mapping[Pace, frozenset[str]]] = {
    pace: frozenset(name for name, one in BY_NAME.items() if one.pace == pace) for pace in PERIOD_NS
}
_NUMBERS: Final = frozenset({int, float})
_MAX: Final = 1e30
_TIME_MAX: Final = 1 << 61


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

    def period_ns(self, pace: Pace) -> int:
        """Time between two readings of a pace, as it told last."""
        fast = PERIOD_NS["fast"] if self.facts.hz is None else round(1e9 / self.facts.hz)
        return fast if pace == "fast" else max(fast, PERIOD_NS[pace])

    @property
    def begin_ns(self) -> int:
        """Its first reading; 0 if there is none."""
        return min((one.times_ns[0] for one in self.readings.values() if len(one)), default=0)


class DeviceRows:
    """What one process told of devices.

    Attributes:
        notes: Why something is not read that is no device.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._by_number: dict[int, ReadDevice] = {}
        self._by_uuid: dict[str, ReadDevice] = {}

    def __bool__(self) -> bool:
        return bool(self._by_uuid)

    def devices(self) -> list[ReadDevice]:
        """Every device, in the order in which they were told."""
        return list(self._by_uuid.values())

    def event(self, name: str, time_ns: int, values: dict[str, Any]) -> None:
        """Take an event whose name is in :data:`DEVICE_EVENTS`.

        Raises:
            UNSOUND: It breaks the schema.
        """
        if name == names.DEVICE_NOTE.name:
            self.notes.append(convert(values["text"], str))
            return
        if name == names.DEVICE.name:
            self._tell(convert(values, _Device))
            return
        device = self._by_number[convert(values.pop("device"), int)]
        if name == names.DEVICE_FAULT.name:
            fault = convert(values, _Fault)
            device.faults.append(DeviceFault(time_ns, fault.what, fault.code))
            return
        window_s = values.pop("window_s", None)
        numbers = values.values()
        if not _NUMBERS.issuperset(map(type, numbers)):
            raise ValueError("counter")
        if numbers and not -_MAX < min(numbers) <= max(numbers) < _MAX:
            raise ValueError("counter")
        if not 0 <= time_ns < _TIME_MAX:
            raise ValueError("time")
        window_ns = None if window_s is None else round(window_s * 1e9)
        fast, *others = _PACES[name]
        if not others:
            device.of_pace(fast).add(time_ns, _of_pace(values, fast), window_ns)
            return
        for pace in (fast, *others):
            known = _of_pace(values, pace)
            if known:
                device.of_pace(pace).add(time_ns, known)

    def _tell(self, told: _Device) -> None:
        facts = DeviceFacts(
            uuid=told.uuid,
            kind=told.kind if told.kind in _KINDS else "",
            vendor=told.vendor,
            model=told.model,
            driver=told.driver,
            parent=told.parent,
            memory_limit_b=told.memory_limit_b,
            hz=told.hz,
            absent=_reasons(told.absent),
            number=told.device,
        )
        device = self._by_uuid.get(told.uuid)
        if device is None:
            device = self._by_uuid[told.uuid] = ReadDevice(facts)
        device.facts = facts
        self._by_number[told.device] = device
        for pace, readings in device.readings.items():
            readings.pace(device.period_ns(pace))


def _of_pace(values: Mapping[str, float], pace: Pace) -> Mapping[str, float]:
    """Those of the counters of a pace; a newer version may know more."""
    known = _COUNTERS[pace]
    if values.keys() <= known:
        return values
    return {name: value for name, value in values.items() if name in known}


def _reasons(told: Sequence[str]) -> dict[str, str]:
    """Reasons by counter, of texts ``counter: reason``."""
    pairs = (one.partition(": ") for one in told)
    return {counter: reason for counter, _, reason in pairs}
