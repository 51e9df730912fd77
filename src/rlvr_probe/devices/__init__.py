"""What devices of a node measure: GPUs through the library of their vendor, and the host itself.

Runs in the sidecar and in ``doctor`` only, never inside training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rlvr_probe.devices.backend import GROUP, Backend, Device, Fault, Reading
from rlvr_probe.devices.sampler import Sampler
from rlvr_probe.registry import load_all

__all__ = ["Backend", "Device", "Failed", "Fault", "Reading", "Sampler", "load", "survey"]

_WINDOW_S = 0.15
"""NVML's windows are to be longer than 0.1 s."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A backend that is installed and cannot be used.

    Attributes:
        name: Of its entry point.
        why: Name of the error.
    """

    name: str
    why: str


def load(name: str | None = None) -> tuple[list[Backend], list[Failed]]:
    """Every backend that is installed, by name, and those that fail to load. Never raises.

    Args:
        name: Of the only one to load; None loads all.
    """
    found: dict[str, Backend] = {}
    failed: list[Failed] = []
    for plugin in load_all(GROUP, name):
        if isinstance(plugin.made, Backend):
            # The first on the path is the one that is imported.
            found.setdefault(plugin.name, plugin.made)
        else:
            failed.append(Failed(plugin.name, type(plugin.error or TypeError()).__name__))
    return list(found.values()), failed


def survey(backend: Backend, sleep: Callable[[float], None] = time.sleep) -> Sequence[Device]:
    """The devices of a backend, each with all that it lacks, as its first readings show.

    Takes a fifth of a second and the time of the calls. The caller closes the backend.
    """
    devices = backend.devices()
    absent = {device.uuid: device.absent for device in devices}
    for again in range(2):
        if again and devices:
            sleep(_WINDOW_S)
        for device in devices:
            for pace in ("fast", "slow", "rare"):
                reading = backend.read(device, pace)
                if reading.absent is not None:
                    absent[device.uuid] = reading.absent
    return [replace(device, absent=dict(absent[device.uuid])) for device in devices]
