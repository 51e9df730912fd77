"""Devices that were read, who read them, and what they did by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from rlvr_probe.analysis.summary.stage_devices import stage_devices
from rlvr_probe.model import names
from rlvr_probe.model.device_series import DeviceSeries
from rlvr_probe.model.trace import Trace

__all__ = ["LeastBusy", "devices", "held_down", "least_busy"]

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
        told = {uuid: own[name] for uuid, own in stage["by_device"].items() if name in own}
        if not told:
            continue
        uuid = min(told, key=told.__getitem__)
        behind = stage["means"][name] - told[uuid]
        if stage["quality"] == "ok" and behind >= _BEHIND:
            lost_s = behind * stage["seconds"]
            least = LeastBusy(uuid, stage["stage"], name, told[uuid], stage["means"][name])
            worst[lost_s, uuid, least.stage] = least
    return worst[max(worst)] if worst else None


def held_down(found: Mapping[str, Any]) -> dict[str, float]:
    """Share of the time of steps in which clocks were held down, by counter, where it is much."""
    step = next((stage for stage in found["stages"] if stage["stage"] == names.STEP.name), None)
    told = {} if step is None else step["per_second"]
    return {name: told[name] for name in _THROTTLES if told.get(name, 0.0) >= _THROTTLED}
