"""NVIDIA GPUs, and parts of them (MIG), through NVML. Makes no CUDA context."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from types import ModuleType
from typing import Any, Final

from rlvr_probe.devices.backend import Device, Fault, Reading, Touch, touch_all
from rlvr_probe.devices.nvidia_gpu import Gpu, explain
from rlvr_probe.model.counters import Pace

__all__ = ["DRIVER", "OURS", "NvidiaBackend", "doubt"]

DRIVER = ("/dev/nvidiactl", "/proc/driver/nvidia")
"""Where the kernel's part of the driver shows, also in containers that lack its libraries."""

_NO_LIBRARY = (
    "an NVIDIA driver is here, and its library libnvidia-ml.so.1 is not: a container gets it with"
    " the driver capability 'utility' (NVIDIA_DRIVER_CAPABILITIES)"
)

_XID = 8
"""``nvmlEventTypeXidCriticalError``."""

_FAULTS = 16
"""So many are taken at once."""


OURS: Final = "nvidia-ml-py"
_OTHER: Final = "pynvml"
_FILES: Final = ("pynvml.py", "pynvml/__init__.py")


def doubt(module: ModuleType) -> str | None:
    """What is wrong with the packages that own the module ``pynvml``; None if nothing is.

    ``nvidia-ml-py`` is the one that NVIDIA maintains. The package ``pynvml`` had a module of that
    name until release 11.5, which hides the other one, and lacks newer calls.

    Args:
        module: ``pynvml``, as it was imported.
    """
    others = _claimed(_OTHER)
    if not others:
        return None
    other = f"{_OTHER} {metadata.version(_OTHER)}"
    if not _claimed(OURS):
        return f"the module pynvml is of {other}: install {OURS} in its place"
    owner = other if os.path.realpath(module.__file__ or "") in others else OURS
    return (
        f"{other} and {OURS} {metadata.version(OURS)} both own the module pynvml, and that of"
        f" {owner} is imported: uninstall {_OTHER}, then install {OURS} again"
    )


def _claimed(package: str) -> list[str]:
    """Files of a package that are the module."""
    try:
        files = metadata.files(package) or ()
    except metadata.PackageNotFoundError:
        return []
    return [os.path.realpath(str(file.locate())) for file in files if file.as_posix() in _FILES]


class NvidiaBackend:
    """Every GPU that NVML shows here: all of the machine or container, whatever CUDA may use."""

    name = "nvidia"

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Load nothing yet.

        Args:
            clock: CLOCK_MONOTONIC, ns.
        """
        self.why: str | None = None
        self.is_here = True
        self._clock = clock
        self._nvml: Any = None
        self._gpus: dict[str, Gpu] = {}
        self._events: Any = None

    def devices(self, touch: Touch = touch_all) -> Sequence[Device]:
        """Open every GPU and part of one. What they lack turns out in their readings."""
        try:
            import pynvml
        except ImportError:
            self.why = "nvidia-ml-py is not installed"
            return ()
        problem = doubt(pynvml)
        failed = [] if problem is None else [problem]
        devices = list(self._opened(pynvml, touch, failed))
        self.why = "; ".join(failed) or None
        return devices

    def _opened(self, nvml: Any, touch: Touch, failed: list[str]) -> Iterator[Device]:
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
                failed.append(f"NVML does not answer ({type(error).__name__})")
                return
            self.is_here = any(map(os.path.exists, DRIVER))
            failed.append(_NO_LIBRARY if self.is_here else "no NVIDIA driver here")
            return
        self._nvml = nvml
        self._events = self._make_events()
        yield from self._enumerate(failed, touch)

    def _enumerate(self, failed: list[str], touch: Touch) -> Iterator[Device]:
        nvml = self._nvml
        try:
            driver = _text(nvml.nvmlSystemGetDriverVersion())
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            failed.append(f"NVML does not count its GPUs: {explain(error.value)}")
            return
        for index in range(count):
            place = f"{self.name} GPU {index}"
            if not touch(place):
                continue
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                whole = self._open(handle, driver, place)
            except nvml.NVMLError as error:
                # A container may see fewer GPUs than NVML counts.
                failed.append(f"GPU {index} cannot be opened: {explain(error.value)}")
                continue
            yield whole
            self._register(handle)
            try:
                yield from self._parts(handle, driver, whole)
            except nvml.NVMLError as error:
                failed.append(f"the parts of GPU {index} are not told: {explain(error.value)}")

    def _open(
        self, handle: Any, driver: str, place: str, part: Any = None, of: Device | None = None
    ) -> Device:
        nvml = self._nvml
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        model = _text(nvml.nvmlDeviceGetName(handle))
        gpu = Gpu(nvml, uuid, handle, self._clock, part)
        self._gpus[uuid] = gpu
        try:
            limit = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
        except nvml.NVMLError:
            limit = None
        absent = dict(gpu.support.absent)
        parent = None if of is None else of.uuid
        return Device(uuid, "gpu", self.name, model, driver, parent, limit, absent, place)

    def _parts(self, whole: Any, driver: str, of: Device) -> Iterator[Device]:
        nvml = self._nvml
        try:
            if not nvml.nvmlDeviceGetMigMode(whole)[0]:
                return
        except nvml.NVMLError:
            return  # no such mode
        for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(whole)):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, index)
            except nvml.NVMLError:
                continue  # no part has this number
            instance = nvml.nvmlDeviceGetGpuInstanceId(handle)
            yield self._open(handle, driver, of.place, (whole, instance), of)

    def read(self, device: Device, pace: Pace) -> Reading:
        """The counters of one pace. What the driver refuses for good is not asked for again."""
        return self._gpus[device.uuid].read(pace)

    def faults(self, timeout_s: float) -> Sequence[Fault]:
        """XIDs that the driver reported since the last call.

        Of several of one GPU NVML repeats the code of the last one. It does not say when they were.
        """
        found: list[Fault] = []
        timeout_ms = max(round(timeout_s * 1000), 1)
        while self._events is not None and len(found) < _FAULTS:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, timeout_ms)
            except self._nvml.NVMLError as error:
                if error.value not in (
                    self._nvml.NVML_ERROR_TIMEOUT,
                    self._nvml.NVML_ERROR_GPU_IS_LOST,
                ):
                    self._events = None
                break
            address = _address(event.device)
            for uuid, gpu in self._gpus.items():
                if _address(gpu.handle) == address:
                    found.append(Fault(uuid, "xid", int(event.eventData)))
            timeout_ms = 1
        return found

    def close(self) -> None:
        """Let go of NVML."""
        if self._nvml is None:
            return
        try:
            for gpu in self._gpus.values():
                gpu.close()
            if self._events is not None:
                self._nvml.nvmlEventSetFree(self._events)
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            pass  # nothing is asked of it any more
        self._nvml = self._events = None
        self._gpus = {}

    def _make_events(self) -> Any:
        try:
            return self._nvml.nvmlEventSetCreate()
        except self._nvml.NVMLError:
            return None  # faults are read from the calls only

    def _register(self, handle: Any) -> None:
        if self._events is None:
            return
        try:
            self._nvml.nvmlDeviceRegisterEvents(handle, _XID, self._events)
        except self._nvml.NVMLError:
            pass  # this GPU reports none


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _text(value: str | bytes) -> str:
    """Releases of nvidia-ml-py differ in which of the two they return."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
