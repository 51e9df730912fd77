"""Devices that were read, who read them, and what they did by stage."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rlvr_probe.analysis.summary.stage_devices import stage_devices
from rlvr_probe.model.devices import DeviceSeries
from rlvr_probe.model.trace import Trace

__all__ = ["devices"]


def devices(trace: Trace) -> dict[str, Any] | None:
    """Devices that were read, who read them, and what they did by stage; None if there are none."""
    if not trace.devices and not trace.sidecars:
        return None
    return {
        "list": [_device(trace, one) for one in trace.devices],
        "sidecars": [
            {
                "process": one.key,
                "host": one.host,
                "pid": one.pid,
                "state": one.state,
                "start_s": one.start_ns / 1e9,
                "last_seen_s": one.last_seen_ns / 1e9,
                "lost": dict(one.lost),
                "faults": dict(one.faults),
            }
            for one in trace.sidecars
        ],
        "stages": [asdict(one) for one in stage_devices(trace)],
    }


def _device(trace: Trace, one: DeviceSeries) -> dict[str, Any]:
    facts = one.facts
    users = [process for process in trace.processes if one.uuid in process.works_on]
    times = [readings.times_ns for readings in one.readings.values() if len(readings)]
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
        "samples": one.samples,
        "from_s": min((moments[0] for moments in times), default=0) / 1e9 if times else None,
        "to_s": max((moments[-1] for moments in times), default=0) / 1e9 if times else None,
        "counters": [counter.name for counter in one.counters()],
        "absent": dict(facts.absent),
        "faults": [
            {"time_s": fault.time_ns / 1e9, "what": fault.what, "code": fault.code}
            for fault in one.faults
        ],
        "processes": [process.index for process in users],
        "ranks": [process.rank for process in users if process.rank is not None],
    }
