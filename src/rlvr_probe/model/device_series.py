"""What the devices of a run read meanwhile: one series per device, and its use over a span.

Times are ns on the clock of the run. Values are kept in arrays of numbers, about 8 bytes each, as
there are a million readings of a device in two days. Inside the arrays NaN is absent; nothing that
leaves here is NaN, and nothing absent is 0.

Where no reading was taken for five periods (the sidecar was away, or the device lost), and across a
counter that went back, values are absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from rlvr_probe.model.counters import BY_NAME, Counter, Pace
from rlvr_probe.model.readings import Readings, Summed

__all__ = [
    "CounterUse", "DeviceFacts", "DeviceFault", "DeviceSeries", "DeviceUse", "Quality",
]  # fmt: skip

Quality = Literal["ok", "low", "absent"]
"""``low``: the span is shorter than three periods of reading, or a tenth of it or more was not
read. ``absent``: nothing is known of it."""

_PERIODS: Final = 3
_COVERED: Final = 0.9

REFRESH_NS: Final = 100_000_000
"""How old an energy counter may be when it is read (10 to 100 ms by what its users found)."""

PERIOD_NS: Final[Mapping[Pace, int]] = {
    "fast": 200_000_000,
    "slow": 1_000_000_000,
    "rare": 60_000_000_000,
}
"""Time between two readings of a pace; ``fast`` where the device does not say."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """A device as the sidecar of its node found it last."""

    uuid: str
    kind: str = ""
    """``gpu`` or ``host``; empty if that is unknown."""
    vendor: str = ""
    model: str = ""
    driver: str = ""
    parent: str | None = None
    """UUID of the GPU that it is a part of."""
    memory_limit_b: int | None = None
    hz: float | None = None
    """How often it was read at last, 1/s."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Counters that it does not report, by name: the reason."""
    host: str = ""
    boot: str = ""
    number: int | None = None
    """Its number in the journal of that sidecar."""


@dataclass(frozen=True, slots=True)
class DeviceFault:
    """An error that a driver reported."""

    time_ns: int
    what: str
    """``xid``, ``lost``, ``reset_required`` or ``unresponsive``."""
    code: int | None


@dataclass(frozen=True, slots=True)
class CounterUse:
    """One counter over a span."""

    counter: Counter
    total: float | None
    """Difference of a ``total``, in its unit; None for the other kinds."""
    mean: float | None
    """Mean of a ``window`` or ``gauge``, over what was read of the span; None for a ``total``."""
    maximum: float | None
    """Largest reading of a ``window`` or ``gauge`` inside the span; None without one."""
    covered: float
    """Share of the span that was read, 0..1."""
    samples: int
    """Readings inside the span."""
    quality: Quality


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """One device over a span of time, with all processes that worked on it."""

    uuid: str
    start_ns: int
    end_ns: int
    counters: Mapping[str, CounterUse]
    """By name, those that are known of it."""
    samples: int
    """Readings of the fast pace inside the span."""
    quality: Quality
    """Of the counters of the fast pace; each has its own too."""
    energy_error_j: float | None
    """How far ``energy_j`` may be off, J, because its counter is read at points in time."""

    @property
    def seconds(self) -> float:
        """Length of the span, s."""
        return (self.end_ns - self.start_ns) / 1e9

    def total(self, name: str) -> float | None:
        """Difference of a ``total``; None if it is unknown."""
        found = self.counters.get(name)
        return None if found is None else found.total

    def mean(self, name: str) -> float | None:
        """Mean of a ``window`` or ``gauge``; None if it is unknown."""
        found = self.counters.get(name)
        return None if found is None else found.mean

    def maximum(self, name: str) -> float | None:
        """Maximum of a ``window`` or ``gauge``; None if it is unknown."""
        found = self.counters.get(name)
        return None if found is None else found.maximum


class DeviceSeries:
    """Everything that was read of one device, by all sidecars of its node after one another.

    Attributes:
        facts: What it is.
        faults: What its driver reported, by time.
        readings: By pace.
    """

    def __init__(
        self,
        facts: DeviceFacts,
        readings: Mapping[Pace, Readings],
        faults: Sequence[DeviceFault] = (),
    ) -> None:
        """Take what was read; the readings of a pace hold its counters only."""
        self.facts = facts
        self.faults = tuple(faults)
        self.readings = dict(readings)

    @property
    def uuid(self) -> str:
        """Its own name."""
        return self.facts.uuid

    @property
    def samples(self) -> int:
        """Readings of the fast pace."""
        fast = self.readings.get("fast")
        return 0 if fast is None else len(fast)

    def counters(self) -> list[Counter]:
        """Those that were read at least once, in the order of the documentation."""
        return [
            counter
            for name, counter in BY_NAME.items()
            if counter.pace in self.readings and name in self.readings[counter.pace].columns
        ]

    def points(self, name: str) -> Iterator[tuple[int, float]]:
        """Time and value of every reading of a counter; of a share, the time its window ends."""
        readings = self.readings.get(BY_NAME[name].pace)
        return iter(()) if readings is None else readings.points(name)

    def over(self, start_ns: int, end_ns: int) -> DeviceUse:
        """What the device did from ``start_ns`` to ``end_ns``.

        A ``total`` is the difference of the counter, which between the readings around either end
        is taken to change its rate once, or not at all; it is absent if one of them lies outside
        what was read. The mean of a ``window`` is weighted by overlap, that of a ``gauge`` by time,
        between readings in a straight line.
        """
        found = dict[str, CounterUse]()
        for counter in self.counters():
            use = self._counter(counter, start_ns, end_ns)
            if use is not None:
                found[counter.name] = use
        fast = self.readings.get("fast")
        grades = {use.quality for use in found.values() if use.counter.pace == "fast"}
        quality: Quality = "absent" if not grades else "low" if "low" in grades else "ok"
        return DeviceUse(
            self.uuid,
            start_ns,
            end_ns,
            found,
            samples=0 if fast is None else fast.count(start_ns, end_ns),
            quality=quality,
            energy_error_j=self._energy_error(start_ns, end_ns) if "energy_j" in found else None,
        )

    def rise(self, name: str, start_ns: int, end_ns: int) -> tuple[float, float] | None:
        """What a ``total`` rose by from ``start_ns`` to ``end_ns`` as far as it was read, and s.

        The mean of it, as of energy, is known of a span of which a part was not read.
        """
        readings = self.readings.get(BY_NAME[name].pace)
        if readings is None or name not in readings.columns:
            return None
        found = readings.rise(name, start_ns, end_ns)
        return None if found is None else (found[0], found[1] / 1e9)

    def _counter(self, counter: Counter, start_ns: int, end_ns: int) -> CounterUse | None:
        readings = self.readings[counter.pace]
        if counter.kind == "total":
            total = readings.difference(counter.name, start_ns, end_ns)
            found = None if total is None else Summed(None, None, end_ns - start_ns)
        else:
            total = None
            mean = readings.window if counter.kind == "window" else readings.gauge
            found = mean(counter.name, start_ns, end_ns)
        if found is None:
            return None
        length = end_ns - start_ns
        covered = min(1.0, found.covered_ns / length) if length > 0 else 1.0
        short = length < _PERIODS * readings.period_ns(start_ns)
        return CounterUse(
            counter,
            total,
            found.mean,
            found.maximum,
            covered,
            readings.count(start_ns, end_ns),
            "low" if short or covered <= _COVERED else "ok",
        )

    def _energy_error(self, start_ns: int, end_ns: int) -> float | None:
        """Bound of what interpolation may err at both ends, J; None if that is unknown."""
        error = 0.0
        for edge_ns in (start_ns, end_ns):
            found = self.readings["fast"].rates("energy_j", edge_ns)
            if found is None or not found[0]:
                return None
            watts_e9, apart_ns = found
            # Power changes somewhere between two readings; either may be of a while ago.
            change = max(watts_e9) - min(watts_e9)
            error += change * (apart_ns + REFRESH_NS) / 2 + max(watts_e9) * REFRESH_NS / 2
        return error
