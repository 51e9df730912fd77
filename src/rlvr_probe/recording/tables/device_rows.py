"""Rows of what devices read, and of who worked on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any

from rlvr_probe.model.devices import DeviceSeries
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording.bulk import Bulk
from rlvr_probe.recording.tables.schema import BY_NAME

__all__ = ["fill_devices"]


def fill_devices(bulk: Bulk, trace: Trace) -> None:
    """Devices, their readings and faults, and the processes that work on them."""
    by_uuid = {one.uuid: at for at, one in enumerate(trace.devices)}
    bulk.add(
        BY_NAME["device"],
        (
            (
                at, one.uuid, one.facts.host, one.facts.boot, one.facts.kind, one.facts.vendor,
                one.facts.model, one.facts.parent, one.facts.memory_limit_b,
            )
            for at, one in enumerate(trace.devices)
        ),
    )  # fmt: skip
    bulk.add(
        BY_NAME["device_process"],
        (
            (by_uuid[uuid], process.index, process.devices_how)
            for process in trace.processes
            for uuid in process.devices or ()
            if uuid in by_uuid
        ),
    )
    for at, one in enumerate(trace.devices):
        bulk.add(BY_NAME["reading"], _readings(at, one))
        bulk.add(
            BY_NAME["device_fault"],
            ((at, fault.time_ns, fault.what, fault.code) for fault in one.faults),
        )


def _readings(at: int, device: DeviceSeries) -> Iterator[Sequence[Any]]:
    for counter in device.counters():
        readings = device.readings[counter.pace]
        windows = counter.kind == "window"
        for place, value in enumerate(readings.columns[counter.name]):
            if not isnan(value):
                end_ns = readings.times_ns[place]
                start_ns = end_ns - readings.windows_ns[place] if windows else end_ns
                yield at, counter.name, start_ns, end_ns, value
