"""Every counter of a device, with its unit and kind, and the events that carry them.

A device is a GPU, a part of one (MIG), or the host itself. Three kinds of value need three ways to
be summed up over a span:

*   ``total``: counts up. Over a span: the difference of the interpolated counter.
*   ``window``: the mean since the reading before. Over a span: weighted by overlap.
*   ``gauge``: holds at the moment of the reading. Over a span: weighted by time, and the maximum.

What a device does not report is absent, with the reason in its ``device`` event; it is never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlvr_probe.model.process_names import Attribute, Name, attributes

__all__ = [
    "BY_NAME", "COUNTERS", "DEVICE", "DEVICES_USED", "DEVICE_FAULT", "DEVICE_NOTE", "DEVICE_SAMPLE",
    "DEVICE_STATE", "Counter", "Kind", "Pace",
]  # fmt: skip

Kind = Literal["total", "window", "gauge"]
Pace = Literal["fast", "slow", "rare"]
"""Read at each tick (5 Hz by default), once a second, once a minute."""


@dataclass(frozen=True, slots=True)
class Counter:
    """One metric of a device.

    Attributes:
        name: As in journals; it ends in its unit where it has one.
        unit: As in OpenTelemetry: ``J``, ``W``, ``By``, ``By/s``, ``s``, ``Hz``, ``Cel``; ``1`` for
            a share from 0 to 1; empty for a plain number.
        kind: How it is summed up over a span.
        pace: How often it is read.
        meaning: What it measures, and what it does not.
        otel: Name of the metric in OpenTelemetry exports; empty if it goes out nowhere: bits have
            no mean.
        otel_of_host: The same where the device is a host, if that has another one.
    """

    name: str
    unit: str
    kind: Kind
    pace: Pace
    meaning: str
    otel: str
    otel_of_host: str = ""


COUNTERS: tuple[Counter, ...] = (
    Counter("energy_j", "J", "total", "fast", "energy drawn by the device", "hw.energy"),
    Counter(
        "nvlink_tx_b", "By", "total", "fast", "bytes sent over NVLink", "rlvr.gpu.nvlink.io"
    ),
    Counter(
        "nvlink_rx_b", "By", "total", "fast", "bytes received over NVLink", "rlvr.gpu.nvlink.io"
    ),
    Counter(
        "cpu_s", "s", "total", "fast", "busy time of all CPU cores of the host",
        "rlvr.host.cpu.time",
    ),
    Counter(
        "engine_active", "1", "window", "fast", "share of time any engine was busy",
        "rlvr.gpu.engine.active",
    ),
    Counter(
        "sm_active", "1", "window", "fast", "mean share of multiprocessors with a warp on them",
        "rlvr.gpu.sm.active",
    ),
    Counter(
        "sm_occupancy", "1", "window", "fast", "mean share of warp slots in use",
        "rlvr.gpu.sm.occupancy",
    ),
    Counter(
        "tensor_active", "1", "window", "fast", "share of time tensor cores were busy",
        "rlvr.gpu.tensor.active",
    ),
    Counter(
        "dram_active", "1", "window", "fast", "share of memory bandwidth used",
        "rlvr.gpu.dram.active",
    ),
    Counter(
        "pcie_tx_b_per_s", "By/s", "window", "fast", "bytes sent over PCIe",
        "rlvr.gpu.pcie.throughput",
    ),
    Counter(
        "pcie_rx_b_per_s", "By/s", "window", "fast", "bytes received over PCIe",
        "rlvr.gpu.pcie.throughput",
    ),
    Counter("power_w", "W", "gauge", "fast", "power drawn at the moment", "hw.power"),
    Counter(
        "memory_b", "By", "gauge", "fast", "memory in use, of all processes together",
        "hw.gpu.memory.usage", "system.memory.usage",
    ),
    Counter(
        "utilization", "1", "gauge", "slow",
        "share of the last 1/6 to 1 s with any kernel running: one busy multiprocessor makes it 1",
        "hw.gpu.utilization",
    ),
    Counter(
        "memory_utilization", "1", "gauge", "slow",
        "share of the last 1/6 to 1 s in which memory was accessed; no bandwidth",
        "rlvr.gpu.memory.active",
    ),
    Counter(
        "sm_clock_hz", "Hz", "gauge", "slow", "clock of the multiprocessors", "rlvr.gpu.clock.sm"
    ),
    Counter("temperature_c", "Cel", "gauge", "slow", "of the GPU", "hw.temperature"),
    Counter(
        "throttle_reasons", "", "gauge", "slow", "bits of why clocks are held down at the moment",
        "",
    ),
    Counter(
        "throttle_power_s", "s", "total", "slow", "time held down by the power cap",
        "rlvr.gpu.throttle.time",
    ),
    Counter(
        "throttle_thermal_s", "s", "total", "slow", "time held down by temperature",
        "rlvr.gpu.throttle.time",
    ),
    Counter(
        "io_read_b", "By", "total", "slow", "bytes read from disks of the host", "system.disk.io"
    ),
    Counter(
        "io_write_b", "By", "total", "slow", "bytes written to disks of the host", "system.disk.io"
    ),
    Counter(
        "network_tx_b", "By", "total", "slow", "bytes sent by the host, loopback omitted",
        "system.network.io",
    ),
    Counter(
        "network_rx_b", "By", "total", "slow", "bytes received by the host, loopback omitted",
        "system.network.io",
    ),
    Counter(
        "ecc_errors", "", "total", "rare", "memory errors that could not be corrected", "hw.errors"
    ),
)  # fmt: skip
"""Every counter, in the order of the documentation."""

BY_NAME = {counter.name: counter for counter in COUNTERS}
"""Each counter by its name."""

_DEVICE = Attribute("device", "", "number of the device in this journal, from 0")


def _read(*paces: Pace) -> tuple[Attribute, ...]:
    return tuple(
        Attribute(counter.name, counter.unit, counter.meaning)
        for counter in COUNTERS
        if counter.pace in paces
    )


DEVICE = Name(
    "device",
    "a device that the sidecar of a node reads, as it was found; recorded again when that changes",
    (
        _DEVICE,
        *attributes(
            uuid="its own name, the same in every container and process",
            kind="'gpu' or 'host'",
            vendor="'nvidia', or that of another backend",
            model="name of the product",
            driver="version of its driver",
            parent="uuid of the GPU that it is a part of",
            memory_limit_b="memory that it has",
            hz="how often it is read",
            absent="list of 'counter: reason', of those that it does not report",
        ),
    ),
    event=True,
)
DEVICE_SAMPLE = Name(
    "device_sample",
    "one reading of a device; its time is the middle of the reading",
    (
        _DEVICE,
        Attribute("window_s", "s", "what the shares in it are the mean of, ending with it"),
        *_read("fast"),
    ),
    event=True,
)
DEVICE_STATE = Name(
    "device_state",
    "what is read of a device less often",
    (_DEVICE, *_read("slow", "rare")),
    event=True,
)
DEVICE_FAULT = Name(
    "device_fault",
    "the driver reported an error of a device, or lost it",
    (
        _DEVICE,
        *attributes(
            what="'xid', 'lost' or 'reset_required'; 'unresponsive': a call for it did not return",
            code="number of the driver, if it gave one",
        ),
    ),
    event=True,
)
DEVICE_NOTE = Name(
    "device_note",
    "why devices of a node are not read, where no 'device' event can say so",
    (Attribute("text", "", "a few words: 'GPU 1 cannot be opened: no permission (4)'"),),
    event=True,
)
DEVICES_USED = Name(
    "devices_used",
    "which devices a recording process works on",
    attributes(
        uuids="list: their own names, or prefixes of these, or numbers in the order of the PCI bus",
        how="'torch': those where it holds memory; 'visible': all that it may use",
    ),
    event=True,
)
