"""Readings of devices, made columns as they are decoded; whatever is unsound is counted.

A device is read several times a second for as long as a run lasts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from rlvr_probe.model import names
from rlvr_probe.model.counters import BY_NAME, Pace
from rlvr_probe.model.device_series import PERIOD_NS
from rlvr_probe.recording.decode import UNSOUND, Definition
from rlvr_probe.recording.devices import DeviceRows, ReadDevice

__all__ = ["READINGS", "ReadingRows"]

READINGS: Final[Mapping[str, tuple[Pace, ...]]] = {
    names.DEVICE_SAMPLE.name: ("fast",),
    names.DEVICE_STATE.name: ("slow", "rare"),
}
"""Events that are readings, and the paces of their counters."""

_TOGETHER: Final = 4_096
"""Readings that are made columns at a time."""

_COUNTERS: Final[Mapping[Pace, frozenset[str]]] = {
    pace: frozenset(name for name, counter in BY_NAME.items() if counter.pace == pace)
    for pace in PERIOD_NS
}
_NUMBERS: Final = frozenset({int, float, type(None)})
_MAX: Final = 1e30
_TIME_MAX: Final = 1 << 61


class ReadingRows:
    """Gathers readings of one process, and hands them to its devices in columns."""

    def __init__(self, devices: DeviceRows, mono_ns: int) -> None:
        """Gather readings for ``devices``; time 0 of their rows is ``mono_ns``."""
        self._devices = devices
        self._mono_ns = mono_ns
        self._definitions: dict[type, Definition] = {}
        self._waiting: list[Any] = []

    def waiting(self, definition: Definition) -> Callable[[Any], object]:
        """What takes rows of a definition whose name is in :data:`READINGS`: they wait."""
        self._definitions[definition.row_type] = definition
        return self._waiting.append

    def flush(self, *, all_of_them: bool) -> tuple[int, int]:
        """Hand on the readings that wait, or none while these are few.

        How many break the schema, and the latest time of the others; 0 if there is none.
        """
        if len(self._waiting) < (1 if all_of_them else _TOGETHER):
            return 0, 0
        rows = self._waiting[:]
        self._waiting.clear()
        try:
            return 0, self._take(rows)
        except UNSOUND:
            refused = last_ns = 0
        for row in rows:
            try:
                last_ns = max(last_ns, self._take([row]))
            except UNSOUND:
                refused += 1
        return refused, last_ns

    def _take(self, rows: Sequence[Any]) -> int:
        """Take readings, all of them or none; their latest time.

        Raises:
            UNSOUND: One of them breaks the schema.
        """
        by_type = defaultdict[type, list[Any]](list)
        for row in rows:
            by_type[type(row)].append(row)
        parts = [
            (device, self._definitions[kind].name, times, columns)
            for kind, some in by_type.items()
            for device, times, columns in self._columns(self._definitions[kind], some)
        ]
        if len({(id(device), name) for device, name, _, _ in parts}) < len(parts):
            # A device of several definitions: its readings are to be taken in their order.
            return max(self._take([row]) for row in rows)
        for device, name, times, columns in parts:
            windows = columns.pop("window_s", ())
            for pace in READINGS[name]:
                own = {name: columns[name] for name in columns if name in _COUNTERS[pace]}
                device.add(pace, times, own, windows if pace == "fast" else ())
        return max(max(times) for _, _, times, _ in parts)

    def _columns(
        self, known: Definition, rows: Sequence[Any]
    ) -> Iterator[tuple[ReadDevice, list[int], dict[str, Any]]]:
        """Times and attributes of readings, by device.

        Raises:
            UNSOUND: One of them breaks the schema.
        """
        fields = (f"a{place}" for place in range(len(known.attributes)))
        times, *values = zip(*map(attrgetter("time", *fields), rows), strict=True)
        columns = dict[str, Any](zip(known.attributes, values, strict=True))
        if not 0 <= self._mono_ns + min(times) <= self._mono_ns + max(times) < _TIME_MAX:
            raise ValueError("time")
        by_number = defaultdict[int, list[int]](list)
        for place, number in enumerate(columns.pop("device")):
            by_number[number].append(place)
        if set(map(type, by_number)) != {int}:
            raise TypeError("device")
        for name, column in columns.items():
            if not _NUMBERS.issuperset(map(type, column)):
                raise ValueError("counter")
            told = [value for value in column if value is not None] if None in column else column
            most = _TIME_MAX / 1e9 if name == "window_s" else _MAX
            if told and not -most < min(told) <= max(told) < most:
                raise ValueError("counter")
        for number, places in by_number.items():
            own_ns = [self._mono_ns + times[place] for place in places]
            own = {name: [column[place] for place in places] for name, column in columns.items()}
            yield self._devices.numbered(number), own_ns, own
