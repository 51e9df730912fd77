"""Counters of devices, and the time in which they were not read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from rlvr_probe.model.counters import Counter as DeviceCounter
from rlvr_probe.model.device_series import DeviceSeries
from rlvr_probe.model.trace import Trace
from rlvr_probe_perfetto.scope import Scope
from rlvr_probe_perfetto.slices import Slice, arguments, shown
from rlvr_probe_perfetto.trace_events import Timeline, Track

__all__ = ["draw_devices", "intervals"]

_AWAY: Final = 5
"""Periods without a reading after which nothing is known of the time between two."""

_UNITS: Final = {
    "J": "J", "W": "W", "By": "B", "s": "s", "Hz": "Hz", "Cel": "°C", "1": "share", "": "count",
}  # fmt: skip
"""A unit of a counter as people read it."""

_Interval = tuple[int, int, float]


def draw_devices(
    timeline: Timeline, trace: Trace, nodes: Mapping[str, int], most: int, scope: Scope
) -> int:
    """Draw every device on lines of its own; of how many counters means are drawn.

    Args:
        timeline: Where to.
        trace: The run.
        nodes: Number of each host.
        most: Most values of one counter; of more readings, means over equal times are drawn.
        scope: What part of the run.
    """
    numbers = Counter[tuple[str, str]]()
    named = list[tuple[int, bool, int, str, DeviceSeries]]()
    for series in trace.devices:
        facts = series.facts
        kind = (shown(facts.kind) or "device") if facts.parent is None else "GPU part"
        kind = "GPU" if kind == "gpu" else str(kind)
        number = numbers[facts.host, kind]
        numbers[facts.host, kind] += 1
        name = kind if kind == "host" else f"{kind} {number}"
        model = "" if kind == "host" or not facts.model else f", {shown(facts.model)}"
        node = nodes.get(facts.host, 0)
        where = f"node {node}" if len(nodes) > 1 else ""
        title = f"{where} {name}{model}".strip()
        named.append((node, kind == "host", len(named), title, series))
    averaged = 0
    for *_, title, series in sorted(named, key=lambda entry: entry[:3]):
        averaged += _draw(timeline.track(title), series, most, scope)
    return averaged


def _draw(track: Track, series: DeviceSeries, most: int, scope: Scope) -> int:
    """Draw a device; of how many of its counters means are drawn."""
    averaged = 0
    unread = dict[tuple[int, int], list[str]]()
    for counter in series.counters():
        readings = series.readings[counter.pace]
        title = _title(counter)
        averaged += readings.count(scope.start_ns, scope.end_ns) > most
        until_ns: int | None = None
        last: float | None = None
        for start_ns, end_ns, value in intervals(series, counter, most, scope):
            start_ns = max(start_ns, scope.start_ns)
            if until_ns is not None and start_ns - until_ns > _AWAY * readings.period_ns(start_ns):
                unread.setdefault((until_ns, start_ns), []).append(counter.name)
            if value != last:
                track.point(*title, start_ns, value)
            until_ns, last = end_ns, value
        ended_ns = scope.end_ns
        if until_ns is not None and ended_ns - until_ns > _AWAY * readings.period_ns(ended_ns):
            unread.setdefault((until_ns, ended_ns), []).append(counter.name)
    for number, ((start_ns, end_ns), missing) in enumerate(sorted(unread.items())):
        said = "not read: the values beside it are the last ones before"
        track.slice(
            Slice(0, number, None, "not read", "device", start_ns, end_ns,
                  arguments({"counters": ", ".join(missing), "meaning": said})),
            "not read",
        )  # fmt: skip
    for fault in series.faults:
        if not scope.meets(fault.time_ns, fault.time_ns):
            continue
        code = "" if fault.code is None else f" {fault.code}"
        track.instant("faults", fault.time_ns, f"{shown(fault.what)}{code}", {})
    return averaged


def intervals(
    series: DeviceSeries, counter: DeviceCounter, most: int, scope: Scope
) -> Iterator[_Interval]:
    """When a counter had which value, by time: start, end, value.

    A share holds from the start of its window; a total is its rise per second between two readings.
    What is unknown of a time is omitted.
    """
    readings = series.readings[counter.pace]
    if readings.count(scope.start_ns, scope.end_ns) > most:
        yield from _means(series, counter, most, scope)
        return
    for reading in _each(series, counter):
        if scope.meets(reading[0], reading[1]):
            yield reading


def _each(series: DeviceSeries, counter: DeviceCounter) -> Iterator[_Interval]:
    readings, name = series.readings[counter.pace], counter.name
    if counter.kind == "window":
        windows = zip(readings.times_ns, readings.windows_ns, readings.columns[name], strict=True)
        for time_ns, window_ns, value in windows:
            if value == value and window_ns > 0:
                yield time_ns - window_ns, time_ns, value
        return
    before: tuple[int, float] | None = None
    for (time_ns, value), (next_ns, following) in pairwise(readings.points(name)):
        before = next_ns, following
        near = next_ns - time_ns <= _AWAY * readings.period_ns(next_ns)
        if _counts(counter):
            yield time_ns, next_ns if near else time_ns, value
        elif near and (rise := readings.difference(name, time_ns, next_ns)) is not None:
            yield time_ns, next_ns, rise / (next_ns - time_ns) * 1e9
    if before is not None and _counts(counter):
        yield before[0], before[0], before[1]


def _means(
    series: DeviceSeries, counter: DeviceCounter, most: int, scope: Scope
) -> Iterator[_Interval]:
    readings, name = series.readings[counter.pace], counter.name
    first_ns = max(readings.times_ns[0], scope.start_ns)
    length_ns = min(readings.times_ns[-1], scope.end_ns) - first_ns
    for number in range(most):
        start_ns = first_ns + length_ns * number // most
        end_ns = first_ns + length_ns * (number + 1) // most
        if end_ns <= start_ns:
            continue
        if counter.kind == "total" and not _counts(counter):
            rise = readings.difference(name, start_ns, end_ns)
            value = None if rise is None else rise / (end_ns - start_ns) * 1e9
        else:
            mean = readings.window if counter.kind == "window" else readings.gauge
            found = mean(name, start_ns, end_ns)
            value = None if found is None else found.mean
        if value is not None:
            yield start_ns, end_ns, value


def _counts(counter: DeviceCounter) -> bool:
    """Whether its readings themselves are drawn: gauges, and totals of rare things."""
    return counter.kind == "gauge" or counter.pace == "rare"


def _title(counter: DeviceCounter) -> tuple[str, str]:
    """The name and the unit of what is drawn of a counter: ``power``, ``W``."""
    name, unit = counter.name, _UNITS[counter.unit]
    if counter.unit not in ("", "1"):
        name = name.rpartition("_")[0]
    if counter.kind == "total" and not _counts(counter):
        # Of one processor, a second in each second.
        unit = "cores" if counter.name == "cpu_s" else f"{unit}/s"
    elif counter.kind == "gauge" and not counter.unit:
        unit = "bits"
    return name.replace("_", " "), unit
