"""Metrics of devices, and attributes of the spans of a process that has a GPU alone."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isnan
from operator import lt
from typing import Final

from rlvr_probe.model.counters import COUNTERS, Pace
from rlvr_probe.model.counters import Counter as DeviceCounter
from rlvr_probe.model.device_series import DeviceSeries, DeviceUse
from rlvr_probe.model.readings import Readings
from rlvr_probe.model.trace import Trace
from rlvr_probe_otlp.planning.data_model import Attributes, Point, Unit
from rlvr_probe_otlp.planning.identity import Context, span_id
from rlvr_probe_otlp.planning.names import known
from rlvr_probe_otlp.planning.run_metrics import Metric, Temporality
from rlvr_probe_otlp.planning.span_tree import Use

__all__ = [
    "DEVICE_ATTRIBUTES",
    "DEVICE_METRICS",
    "PERIOD_NS",
    "SPAN_USE",
    "DeviceUnits",
    "Total",
    "use_of_spans",
]


@dataclass(slots=True)
class Total:
    """What one counter rose by, over windows that follow one another.

    It goes on while it is not read: what it rose by meanwhile belongs to the window in which it is
    known again. Readings of before the window may be forgotten, as they are while a run goes on.

    Attributes:
        rose: Together, in its unit; what it rose by around a fall is not in it.
        edge: Start or end of a window at which it was known last, ns, and what it said then; None
            if there was none since it fell or started anew.
        read: Its last reading.
    """

    rose: float = 0.0
    edge: tuple[int, float] | None = None
    read: float | None = None

    def take(
        self, readings: Readings, name: str, start_ns: int, end_ns: int
    ) -> tuple[int, float] | None:
        """Since when, ns, it rose by how much until the end of the next window; None if unknown."""
        before = self.edge
        if self._fell(readings, name, start_ns, end_ns):
            before = None
        elif before is None and (said := readings.at(name, start_ns)) is not None:
            before = (start_ns, said)
        now = readings.at(name, end_ns)
        self.edge = before if now is None else (end_ns, now)
        if before is None or now is None:
            return None
        since_ns, said = before
        rose = max(0.0, now - said)
        self.rose += rose
        return since_ns, rose

    def _fell(self, readings: Readings, name: str, start_ns: int, end_ns: int) -> bool:
        """Whether it fell or started anew in the window."""
        times, column = readings.times_ns, readings.columns[name]
        first = (bisect_left if self.read is None else bisect_right)(times, start_ns)
        inside = column[first : bisect_right(times, end_ns)]
        known = [] if self.read is None else [self.read]
        known += [value for value in inside if not isnan(value)]
        if known:
            self.read = known[-1]
        return any(map(lt, known[1:], known)) or readings.began_anew(start_ns, end_ns)


PERIOD_NS: Final = 15_000_000_000
"""Time that a point covers."""

_PERIODS: Final = 4
"""Points of a series that are sent together."""

_AROUND: Final = 3
"""Readings behind a window, whose value they decide."""

_MORE: Final[Mapping[str, tuple[str, str]]] = {
    "pcie_tx_b_per_s": ("network.io.direction", "transmit"),
    "pcie_rx_b_per_s": ("network.io.direction", "receive"),
    "nvlink_tx_b": ("network.io.direction", "transmit"),
    "nvlink_rx_b": ("network.io.direction", "receive"),
    "network_tx_b": ("network.io.direction", "transmit"),
    "network_rx_b": ("network.io.direction", "receive"),
    "io_read_b": ("disk.io.direction", "read"),
    "io_write_b": ("disk.io.direction", "write"),
    "throttle_power_s": ("rlvr.throttle.reason", "power"),
    "throttle_thermal_s": ("rlvr.throttle.reason", "thermal"),
    "ecc_errors": ("error.type", "uncorrected"),
}
"""What distinguishes counters of the same metric."""

_STATE: Final = {"system.memory.usage": ("system.memory.state", "used")}
"""What distinguishes the series of a metric from others of it, which are not read."""

_UP_AND_DOWN: Final = frozenset({"hw.gpu.memory.usage", "system.memory.usage"})
"""What the conventions have as an UpDownCounter, although it is read as it is at a moment."""

_MEANINGS: Final = {
    "hw.errors": "memory errors that could not be corrected",
    "rlvr.gpu.nvlink.io": "bytes sent and received over NVLink",
    "rlvr.gpu.pcie.throughput": "bytes sent and received over PCIe",
    "rlvr.gpu.throttle.time": "time that clocks were held down",
    "hw.gpu.memory.usage": "memory of the GPU in use, of all processes together",
    "system.memory.usage": "memory of the host in use, of all processes together",
    "system.disk.io": "bytes read from and written to disks of the host",
    "system.network.io": "bytes sent and received by the host, without loopback",
}


def _metric(name: str, counter: DeviceCounter) -> Metric:
    unit = "{error}" if name == "hw.errors" else counter.unit or "1"
    meaning = _MEANINGS.get(name, counter.meaning)
    if name in _UP_AND_DOWN:
        return Metric(name, unit, "updown", meaning)
    return Metric(name, unit, "sum" if counter.kind == "total" else "gauge", meaning)


DEVICE_METRICS: Final[Mapping[str, Metric]] = {
    name: _metric(name, counter)
    for counter in COUNTERS
    for name in (counter.otel, counter.otel_of_host)
    if name
}
"""Every metric of a device by its name."""

SPAN_USE: Final[Mapping[str, tuple[str, Callable[[DeviceUse, str], float | None]]]] = {
    "rlvr.gpu.energy_j": ("energy that its GPU drew", DeviceUse.total),
    "rlvr.gpu.power_w": ("mean power of its GPU", DeviceUse.mean),
    "rlvr.gpu.sm_active": ("mean share of multiprocessors with a warp on them", DeviceUse.mean),
    "rlvr.gpu.tensor_active": ("share of time that tensor cores were busy", DeviceUse.mean),
    "rlvr.gpu.dram_active": ("share of memory bandwidth used", DeviceUse.mean),
    "rlvr.gpu.utilization": ("share of time with any kernel running", DeviceUse.mean),
    "rlvr.gpu.memory_b": ("most memory in use, of all processes together", DeviceUse.maximum),
}
"""Attributes of a span whose process works on one GPU alone: their meaning, and what gives them of
the counter that ends their name."""

DEVICE_ATTRIBUTES: Final = (
    "disk.io.direction", "error.type", "host.name", "hw.id", "hw.model", "hw.parent", "hw.type",
    "hw.vendor", "network.io.direction", "rlvr.throttle.reason", "system.memory.state",
)  # fmt: skip
"""Attributes of the points of devices."""


def use_of_spans(trace: Trace) -> Use:
    """What the GPU of a process did during a span, by process, start and end, ns.

    Nothing where a process works on several GPUs or shares its own: a device is never divided; and
    no counter that was read too seldom for so short a span.
    """
    users = Counter(uuid for process in trace.processes for uuid in process.works_on)
    series = {device.uuid: device for device in trace.devices}
    alone = {
        process.index: series[uuid]
        for process in trace.processes
        for uuid in process.works_on
        if len(process.works_on) == users[uuid] == 1 and uuid in series
    }

    def use(process: int, start_ns: int, end_ns: int) -> Attributes:
        if process not in alone:
            return {}
        found = alone[process].over(start_ns, end_ns)
        sound = {
            name: counter for name, counter in found.counters.items() if counter.quality == "ok"
        }
        kept = replace(found, counters=sound)
        return known(
            {
                name: value_of(kept, name.removeprefix("rlvr.gpu."))
                for name, (_, value_of) in SPAN_USE.items()
            }
        )

    return use


@dataclass(slots=True)
class _Progress:
    """How far the points of a pace of a device have come.

    Attributes:
        first_ns: Its first reading.
        windows: How many are over.
        totals: What counts up, by counter.
        points: Of the unit that is not complete yet.
    """

    first_ns: int
    windows: int = 0
    totals: dict[str, Total] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)


class DeviceUnits:
    """Points of every device: of each 15 s the mean of what holds, and how far what counts up came.

    What was not read is in no point; a counter that went on meanwhile is in the point where
    it is known again. Goes on where it was, with more of the readings: each window needs only those
    around it.
    """

    def __init__(self, temporality: Temporality, periods: int | None = None) -> None:
        """Start without points.

        Args:
            temporality: Of the points.
            periods: Points of a series in a unit, 40 by default; the last may have fewer.
        """
        self._temporality: Temporality = temporality
        self._periods = periods or _PERIODS
        self._progress: dict[tuple[str, Pace], _Progress] = {}

    def units(self, context: Context, trace: Trace, until_ns: int | None) -> Iterator[Unit]:
        """Units that are complete, and were not given before.

        Args:
            context: The run.
            trace: With its devices, or with what was read of them since the last unit.
            until_ns: What was read before this time is all there; None if nothing more comes.
        """
        for device in trace.devices:
            for pace, readings in device.readings.items():
                if readings.times_ns:
                    alone = DeviceSeries(device.facts, {pace: readings})
                    yield from self._of_pace(context, alone, pace, until_ns)

    def _of_pace(
        self, context: Context, device: DeviceSeries, pace: Pace, until_ns: int | None
    ) -> Iterator[Unit]:
        times = device.readings[pace].times_ns
        progress = self._progress.setdefault((device.uuid, pace), _Progress(times[0]))
        first, last = progress.first_ns, times[-1]
        windows = -(-max(1, last - first) // PERIOD_NS)
        if until_ns is not None:
            # Between two readings a counter is what those around them let it be.
            known = min(until_ns, last - _AROUND * device.readings[pace].period_ns(last))
            windows = (known - first) // PERIOD_NS
        while progress.windows < windows:
            number = progress.windows
            start = first + number * PERIOD_NS
            end = min(start + PERIOD_NS, last)
            progress.points += _points(
                context, device, (first, start, end), progress.totals, self._temporality
            )
            progress.windows += 1
            complete = progress.windows % self._periods == 0
            if progress.points and (complete or (until_ns is None and progress.windows == windows)):
                place = (context.run, "device", device.uuid, pace, number // self._periods)
                key = span_id(context.node, *place)
                yield Unit(key, f"device {device.uuid}", "", (), tuple(progress.points))
                progress.points.clear()


def _points(
    context: Context,
    device: DeviceSeries,
    times: tuple[int, int, int],
    totals: dict[str, Total],
    temporality: Temporality,
) -> Iterator[Point]:
    """Points at the end of a window; ``times``: first reading, start and end of the window."""
    first, start, end = times
    of_host = device.facts.kind == "host"
    uses = device.over(start, end).counters
    for counter in device.counters():
        if not counter.otel:
            continue
        metric = DEVICE_METRICS[(of_host and counter.otel_of_host) or counter.otel]
        use = uses.get(counter.name)
        value: float
        if counter.kind == "total":
            total = totals.setdefault(counter.name, Total())
            found = total.take(device.readings[counter.pace], counter.name, start, end)
            if found is None:
                continue
            since, value = (first, total.rose) if temporality == "cumulative" else found
        elif use is not None and use.mean is not None:
            since = end if metric.kind == "gauge" else first
            value = round(use.mean) if counter.unit == "By" else use.mean
        else:
            continue
        yield Point(
            metric.name, metric.unit, metric.kind, _attributes(device, counter, metric),
            context.at(since), context.at(end), value,
        )  # fmt: skip


def _attributes(device: DeviceSeries, counter: DeviceCounter, metric: Metric) -> Attributes:
    facts = device.facts
    said = {
        "hw.id": device.uuid,
        "hw.type": facts.kind or None,
        "hw.model": facts.model or None,
        "hw.vendor": facts.vendor or None,
        "hw.parent": facts.parent,
        "host.name": facts.host or None,
    }
    more = _MORE.get(counter.name) or _STATE.get(metric.name)
    return {**known(said), **dict([more] if more else [])}
