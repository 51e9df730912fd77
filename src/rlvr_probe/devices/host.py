"""The host itself, through psutil: processors, memory, disks, network."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlvr_probe.devices.backend import CounterSupport, Device, Fault, Reading, Touch, touch_all
from rlvr_probe.model.counters import Pace
from rlvr_probe.probe import identity

__all__ = ["HostBackend"]

_COUNTERS = (
    "cpu_s",
    "memory_b",
    "io_read_b",
    "io_write_b",
    "network_tx_b",
    "network_rx_b",
)
_IDLE = frozenset({"idle", "iowait", "guest", "guest_nice"})
"""Processor times that are not busy, or that are in ``user`` and ``nice`` already."""


class HostBackend:
    """One device: what the kernel counts, for all containers of the host together."""

    name = "host"

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Load nothing yet.

        Args:
            clock: CLOCK_MONOTONIC, ns.
        """
        self.why: str | None = None
        self.is_here = True
        self._clock = clock
        self._psutil: Any = None
        self._standing = CounterSupport()

    def devices(self, touch: Touch = touch_all) -> Sequence[Device]:
        """The host; unknown without psutil."""
        boot = identity.boot_id()
        if boot is None:
            self.why = "the kernel does not report its boot id"
            return ()
        limit = None
        try:
            import psutil

            self._psutil = psutil
            limit = int(psutil.virtual_memory().total)
        except ImportError:
            for name in _COUNTERS:
                self._standing.refuse(name, "psutil is not installed")
        except OSError:
            pass  # the first reading says what is absent
        absent = dict(self._standing.absent)
        model, driver = platform.machine(), platform.release()
        uuid = f"host-{boot}"
        return [Device(uuid, "host", self.name, model, driver, None, limit, absent)]

    def read(self, device: Device, pace: Pace) -> Reading:
        """The counters of one pace."""
        before = self._clock()
        values: dict[str, float] = {}
        if self._psutil is not None:
            calls: Sequence[Callable[[], Mapping[str, float]]] = ()
            if pace == "fast":
                calls = (self._processors, self._memory)
            elif pace == "slow":
                calls = (self._disks, self._network)
            for call in calls:
                values.update(self._ask(call, before))
        absent = dict(self._standing.absent)
        return Reading((before + self._clock()) // 2, None, values, absent)

    def faults(self, timeout_s: float) -> Sequence[Fault]:
        """None: the kernel reports them elsewhere."""
        return ()

    def close(self) -> None:
        """There is nothing to let go of."""

    def _ask(self, call: Callable[[], Mapping[str, float]], now: int) -> Mapping[str, float]:
        names = _NAMES[call.__name__]
        if not any(self._standing.wants(name, now) for name in names):
            return {}
        try:
            values = call()
        except (OSError, RuntimeError, ValueError) as error:
            # Of a kernel that hides or formats its files otherwise: sandboxes, for example.
            for name in names:
                self._standing.fail(name, f"psutil: {type(error).__name__}", now)
            return {}
        for name in names:
            if name in values:
                self._standing.gave(name)
            else:
                self._standing.fail(name, "the kernel lists none", now)
        return values

    def _processors(self) -> Mapping[str, float]:
        times = self._psutil.cpu_times()._asdict()
        return {"cpu_s": sum(spent for name, spent in times.items() if name not in _IDLE)}

    def _memory(self) -> Mapping[str, float]:
        memory = self._psutil.virtual_memory()
        return {"memory_b": memory.total - memory.available}

    def _disks(self) -> Mapping[str, float]:
        disks = self._psutil.disk_io_counters()
        return (
            {}
            if disks is None
            else {"io_read_b": disks.read_bytes, "io_write_b": disks.write_bytes}
        )

    def _network(self) -> Mapping[str, float]:
        found = self._psutil.net_io_counters(pernic=True)
        found.pop("lo", None)
        # What leaves a container through a bridge would count three times.
        real = {name: counts for name, counts in found.items() if _is_hardware(name)} or found
        if not real:
            return {}
        return {
            "network_tx_b": sum(counts.bytes_sent for counts in real.values()),
            "network_rx_b": sum(counts.bytes_recv for counts in real.values()),
        }


_NAMES = {
    "_processors": ("cpu_s",),
    "_memory": ("memory_b",),
    "_disks": ("io_read_b", "io_write_b"),
    "_network": ("network_tx_b", "network_rx_b"),
}


def _is_hardware(interface: str) -> bool:
    return os.path.exists(f"/sys/class/net/{interface}/device")
