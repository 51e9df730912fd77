"""Devices that were read, who read them, and what they did by stage: a row per stage and kind.

In Python: of every run hosts are read, and to load what SQL takes longer than all of this. Metrics
of GPUs are those of the section ``devices``, which is asked of runs of any size; tests hold one
against the other, counter by counter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from rlvr_probe.analysis.summary.span_devices import (
    Attribution,
    Interval,
    NodeDevices,
    Scope,
    merged,
    stage_spans,
)
from rlvr_probe.model import names
from rlvr_probe.model.counters import BY_NAME
from rlvr_probe.model.device_series import DeviceSeries, DeviceUse, Quality
from rlvr_probe.model.trace import Trace

__all__ = ["StageDevices", "devices", "held_down", "least_busy", "stage_devices"]

_KNOWN: Final = 0.5
"""A mean that is known of a smaller share of the time is omitted."""

_StepKey = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class StageDevices:
    """What the devices of one kind did in one stage, over all steps.

    Attributes:
        stage: Its name, or ``step``.
        kind: ``gpu`` or ``host``.
        scope: Where the devices were found, see :mod:`rlvr_probe.analysis.summary.span_devices`.
        devices: How many.
        steps: Steps in which the stage was seen.
        seconds: Time of it, summed over devices; spans of one device at the same time count once.
        per_step: By counter that counts up: sum over all devices, mean of the steps of which it is
            wholly known.
        known_steps: By such a counter: how many steps these are.
        per_second: By such a counter: of one device, mean over the time of which it is known; as
            ``means``, of half of it or more.
        means: By other counter: mean over devices and over the time of which it is known.
        maxima: By such a counter: largest reading of any device.
        by_device: Means of each device by its UUID, and what it counts per second.
        energy_error_j: How far ``energy_j`` per step may be off.
        quality: ``low`` if half of the time or more lies in spans that are too short to be read, or
            was not read.
        shared: Stages of others were open on one of the devices at the same time.
    """

    stage: str
    kind: str
    scope: Scope
    devices: int
    steps: int
    seconds: float
    per_step: Mapping[str, float]
    known_steps: Mapping[str, int]
    per_second: Mapping[str, float]
    means: Mapping[str, float]
    maxima: Mapping[str, float]
    by_device: Mapping[str, Mapping[str, float]]
    energy_error_j: float | None
    quality: Quality
    shared: bool


@dataclass(slots=True)
class _Seen:
    """Where a stage was seen: intervals by step and device."""

    steps: dict[_StepKey, dict[str, list[Interval]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    scopes: set[Scope] = field(default_factory=set)
    shared: bool = False


def stage_devices(trace: Trace) -> list[StageDevices]:
    """Per stage what GPUs did, then per stage what hosts did; nothing where no device was read.

    Steps that not every rank finished are omitted.
    """
    if not trace.devices:
        return []
    attribution = Attribution(trace)
    series = {device.uuid: device for device in trace.devices}
    order = {name: place for place, name in enumerate((names.STEP.name, *names.STAGES))}
    return [
        _summed(stage, kind, seen, series)
        for kind in ("gpu", "host")
        for stage, seen in sorted(
            _seen(trace, attribution, kind).items(), key=lambda item: order[item[0]]
        )
    ]


def _seen(trace: Trace, attribution: Attribution, kind: str) -> Mapping[str, _Seen]:
    found = defaultdict[str, _Seen](_Seen)
    hosts = NodeDevices(device for device in trace.devices if device.facts.kind == "host")
    done = {id(span): step for step in trace.steps() if step.done for span in step.spans}
    for span in stage_spans(trace):
        step = done.get(id(span))
        if step is None:
            continue
        scope, devices = attribution.devices(span.process)
        if kind == "host":
            scope, devices = "node", hosts.of(trace.processes[span.process])
        if not devices:
            continue
        seen = found[span.name]
        seen.scopes.add(scope)
        by_device = seen.steps[step.attempt, step.session, step.life, step.number]
        for device in devices:
            by_device[device.uuid].append((span.start_ns, span.end_ns))
            if kind == "gpu" and not seen.shared:
                seen.shared = attribution.is_shared(span, device.uuid)
    return found


def _summed(stage: str, kind: str, seen: _Seen, series: Mapping[str, DeviceSeries]) -> StageDevices:
    steps = [
        [
            series[uuid].over(start_ns, end_ns)
            for uuid, intervals in by_device.items()
            for start_ns, end_ns in merged(intervals)
        ]
        for by_device in seen.steps.values()
    ]
    uses = [use for step in steps for use in step]
    by_device = defaultdict[str, list[DeviceUse]](list)
    for use in uses:
        by_device[use.uuid].append(use)
    seconds = sum(use.seconds for use in uses)
    per_step, known_steps = _totals(steps)
    means, maxima = _means(uses)
    low_s = sum(use.seconds for use in uses if use.quality != "ok")
    quality: Quality = "low" if 2 * low_s >= seconds else "ok"
    scopes: Sequence[Scope] = ("node", "job", "process")
    return StageDevices(
        stage=stage,
        kind=kind,
        scope=next(scope for scope in scopes if scope in seen.scopes),
        devices=len(by_device),
        steps=len(steps),
        seconds=seconds,
        per_step=per_step,
        known_steps=known_steps,
        per_second=_rates(uses, series),
        means=means,
        maxima=maxima,
        by_device={
            uuid: {**_means(own)[0], **_rates(own, series)} for uuid, own in by_device.items()
        },
        energy_error_j=_energy_error(steps),
        quality="absent" if all(use.quality == "absent" for use in uses) else quality,
        shared=seen.shared,
    )


def _rates(uses: Sequence[DeviceUse], series: Mapping[str, DeviceSeries]) -> dict[str, float]:
    """Per second, of what is known of half of the time or more."""
    rates, seconds = dict[str, float](), sum(use.seconds for use in uses)
    read = {
        counter.name
        for use in uses
        for counter in series[use.uuid].counters()
        if counter.kind == "total"
    }
    # In the order of the vocabulary: that of a set differs from run to run.
    for name in filter(read.__contains__, BY_NAME):
        # Of what is known of the whole span, that; else as far as it was read.
        rises = (
            series[use.uuid].rise(name, use.start_ns, use.end_ns)
            if (total := use.total(name)) is None
            else (total, use.seconds)
            for use in uses
        )
        known = [rise for rise in rises if rise is not None]
        known_s = sum(length_s for _, length_s in known)
        if known_s and known_s >= _KNOWN * seconds:
            rates[name] = sum(amount for amount, _ in known) / known_s
    return rates


def _totals(steps: Sequence[Sequence[DeviceUse]]) -> tuple[dict[str, float], dict[str, int]]:
    """Per step, and how many steps are known."""
    per_step, known_steps = dict[str, float](), dict[str, int]()
    for name in _names(steps, "total"):
        totals = ([use.total(name) for use in step] for step in steps)
        whole = [sum(filter(None, step)) for step in totals if None not in step]
        if whole:
            per_step[name], known_steps[name] = sum(whole) / len(whole), len(whole)
    return per_step, known_steps


def _means(uses: Sequence[DeviceUse]) -> tuple[dict[str, float], dict[str, float]]:
    """Means over the time of which they are known, and the largest readings."""
    means, maxima, seconds = (
        dict[str, float](),
        dict[str, float](),
        sum(use.seconds for use in uses),
    )
    for name in _names([uses], "window", "gauge"):
        read = [(use.counters[name], use.seconds) for use in uses if name in use.counters]
        known_s = sum(value.covered * length for value, length in read)
        if known_s < _KNOWN * seconds or not known_s:
            continue
        total = sum(value.mean * value.covered * s for value, s in read if value.mean is not None)
        means[name] = total / known_s
        largest = [value.maximum for value, _ in read if value.maximum is not None]
        if largest:
            maxima[name] = max(largest)
    return means, maxima


def _names(steps: Iterable[Sequence[DeviceUse]], *kinds: str) -> list[str]:
    found = {
        name
        for step in steps
        for use in step
        for name, counter_use in use.counters.items()
        if counter_use.counter.kind in kinds
    }
    return [name for name in BY_NAME if name in found]


def _energy_error(steps: Sequence[Sequence[DeviceUse]]) -> float | None:
    """Bound of the energy per step, over the steps of which it is known."""
    whole = [step for step in steps if all("energy_j" in use.counters for use in step)]
    errors = [use.energy_error_j for step in whole for use in step]
    return None if not whole or None in errors else sum(filter(None, errors)) / len(whole)


_BEHIND: Final = 0.1
"""By how much less than the mean a GPU has to be busy in a stage to be named."""

_THROTTLED: Final = 0.01
"""Share of step time from which it is said that clocks were held down."""

_THROTTLES: Final = ("throttle_power_s", "throttle_thermal_s")


@dataclass(frozen=True, slots=True)
class LeastBusy:
    """A GPU that is far less busy than the others in some stage.

    Attributes:
        uuid: Its name.
        stage: Where.
        counter: By which counter.
        share, mean: How busy it is, and how busy all are, 0..1.
    """

    uuid: str
    stage: str
    counter: str
    share: float
    mean: float


def devices(trace: Trace) -> dict[str, Any] | None:
    """Devices that were read, who read them, and what they did by stage; None if there are none."""
    if not trace.devices and not trace.sidecars:
        return None
    return {
        "list": [_device(trace, device) for device in trace.devices],
        "sidecars": [
            {
                "process": sidecar.key,
                "host": sidecar.host,
                "pid": sidecar.pid,
                "state": sidecar.state,
                "start_s": sidecar.start_ns / 1e9,
                "last_seen_s": sidecar.last_seen_ns / 1e9,
                "lost": dict(sidecar.lost),
                "faults": dict(sidecar.faults),
            }
            for sidecar in trace.sidecars
        ],
        "stages": [asdict(stage) for stage in stage_devices(trace)],
    }


def _device(trace: Trace, device: DeviceSeries) -> dict[str, Any]:
    facts = device.facts
    users = [process for process in trace.processes if device.uuid in process.works_on]
    times = [readings.times_ns for readings in device.readings.values() if len(readings)]
    return {
        "uuid": facts.uuid,
        "kind": facts.kind,
        "vendor": facts.vendor,
        "model": facts.model,
        "driver": facts.driver,
        "parent": facts.parent,
        "host": facts.host,
        "memory_limit_b": facts.memory_limit_b,
        "hz": facts.hz,
        "samples": device.samples,
        "from_s": min((moments[0] for moments in times), default=0) / 1e9 if times else None,
        "to_s": max((moments[-1] for moments in times), default=0) / 1e9 if times else None,
        "counters": [counter.name for counter in device.counters()],
        "absent": dict(facts.absent),
        "faults": [
            {"time_s": fault.time_ns / 1e9, "what": fault.what, "code": fault.code}
            for fault in device.faults
        ],
        "processes": [process.index for process in users],
        "ranks": [process.rank for process in users if process.rank is not None],
    }


def least_busy(found: Mapping[str, Any]) -> LeastBusy | None:
    """Of what :func:`devices` found, the GPU that is furthest behind the others, if it is far.

    By the time that this costs, over all stages.
    """
    worst = dict[tuple[float, str, str], LeastBusy]()
    for stage in found["stages"]:
        name = next((n for n in ("sm_active", "utilization") if n in stage["means"]), None)
        if stage["kind"] != "gpu" or stage["stage"] == names.STEP.name or name is None:
            continue
        busy = {uuid: own[name] for uuid, own in stage["by_device"].items() if name in own}
        uuid, mean = min(busy, key=busy.__getitem__, default=""), stage["means"][name]
        if busy and stage["quality"] == "ok" and mean - busy[uuid] >= _BEHIND:
            lost_s = (mean - busy[uuid]) * stage["seconds"]
            least = LeastBusy(uuid, stage["stage"], name, busy[uuid], mean)
            worst[lost_s, uuid, least.stage] = least
    return worst[max(worst)] if worst else None


def held_down(found: Mapping[str, Any]) -> dict[str, float]:
    """Share of the time of steps in which clocks were held down, by counter, where it is much."""
    step = next((stage for stage in found["stages"] if stage["stage"] == names.STEP.name), None)
    held = {} if step is None else step["per_second"]
    return {name: held[name] for name in _THROTTLES if held.get(name, 0.0) >= _THROTTLED}
