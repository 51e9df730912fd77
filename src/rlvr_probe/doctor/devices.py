"""Which devices the sidecar would read here, and which counters they lack."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from rlvr_probe import devices
from rlvr_probe.config import ARM
from rlvr_probe.devices.backend import GROUP
from rlvr_probe.doctor.startup import Child, NoAnswer
from rlvr_probe.registry import entries

__all__ = ["DeviceFinding", "Gpu", "ask_devices", "look"]

_CODE = "from rlvr_probe.doctor.devices import look\nanswer = look({name!r})"
_LEAST_S = 0.5
"""Time to read what a process has answered long ago, s."""


@dataclass(frozen=True, slots=True)
class DeviceFinding:
    """A device that would be read.

    Attributes:
        kind: ``gpu`` or ``host``.
        model: Name of the product.
        driver: Version of its driver.
        part: It is a part of a GPU (MIG).
        memory_limit_b: Memory that it has, bytes; None if it does not say.
        absent: Counters that it lacks, each with the reason.
    """

    kind: str
    model: str
    driver: str | None
    part: bool
    memory_limit_b: int | None
    absent: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Gpu:
    """What the GPU library says. A machine without one is as good as any.

    Attributes:
        driver: Version of the driver, None if there is none.
        devices: Name of each GPU of this machine.
        reason: Why nothing, or not all, is known of GPUs.
    """

    driver: str | None
    devices: tuple[str, ...]
    reason: str | None


def ask_devices(
    environ: Mapping[str, str],
) -> Callable[[float], tuple[Gpu, tuple[DeviceFinding, ...]]]:
    """Ask the devices in a process for each backend, and return what waits for the answers.

    No CUDA context is made, but with a driver that is out of order its library may hang or crash:
    that hides no device of another backend.
    """
    asked = {name: value for name, value in environ.items() if not name.startswith(ARM)}
    names = sorted({point.name for point in entries(GROUP)})
    children = {name: Child(_CODE.format(name=name), asked) for name in names}

    def wait(patience_s: float) -> tuple[Gpu, tuple[DeviceFinding, ...]]:
        deadline = time.monotonic() + patience_s
        found, reasons = list[DeviceFinding](), list[str]()
        for name, child in children.items():
            try:
                printed = child.answer(max(deadline - time.monotonic(), _LEAST_S))
            except NoAnswer as missing:
                reasons.append(f"devices of {name} cannot be read ({missing})")
                continue
            answer = json.loads(printed)
            found += (DeviceFinding(**entry) for entry in answer["found"])
            reasons += filter(None, [answer["reason"]])
        gpus = [device for device in found if device.kind == "gpu" and not device.part]
        driver = gpus[0].driver if gpus else None
        names_of = tuple(gpu.model for gpu in gpus)
        return Gpu(driver, names_of, "; ".join(reasons) or None), tuple(found)

    return wait


def look(name: str) -> str:
    """The answer of that process, of the backend of that name."""
    backends, failed = devices.load(name)
    reasons = [f"devices of {backend.name} cannot be read ({backend.why})" for backend in failed]
    found = list[DeviceFinding]()
    for backend in backends:
        found += (
            DeviceFinding(
                device.kind, device.model, device.driver, device.parent is not None,
                device.memory_limit_b, dict(device.absent),
            )
            for device in devices.survey(backend)
        )  # fmt: skip
        if backend.why:
            reasons.append(backend.why)
        backend.close()
    return json.dumps(
        {"found": [asdict(device) for device in found], "reason": "; ".join(reasons) or None}
    )
