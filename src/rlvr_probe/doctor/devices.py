"""Which devices the sidecar would read here, and which counters they cannot tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from rlvr_probe import devices
from rlvr_probe.config import ARM
from rlvr_probe.doctor.child import Child, NoAnswer

__all__ = ["DeviceFinding", "Gpu", "ask_devices", "look"]

_CODE = "from rlvr_probe.doctor.devices import look\nanswer = look()"


@dataclass(frozen=True, slots=True)
class DeviceFinding:
    """A device that would be read.

    Attributes:
        kind: ``gpu`` or ``host``.
        model: Name of the product.
        driver: Version of its driver.
        part: It is a part of a GPU (MIG).
        memory_limit_b: Memory that it has, bytes; None if it does not say.
        absent: Counters that it cannot tell, each with the reason.
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
    """Ask the devices in a process of its own, and return what waits for the answer.

    No CUDA context is made, but with a driver that is out of order its library may hang or crash.
    """
    asked = {name: value for name, value in environ.items() if not name.startswith(ARM)}
    child = Child(_CODE, asked)

    def wait(patience_s: float) -> tuple[Gpu, tuple[DeviceFinding, ...]]:
        try:
            answer = json.loads(child.answer(patience_s))
        except NoAnswer as missing:
            return Gpu(None, (), str(missing)), ()
        found = tuple(DeviceFinding(**one) for one in answer["found"])
        gpus = [one for one in found if one.kind == "gpu" and not one.part]
        driver = gpus[0].driver if gpus else None
        return Gpu(driver, tuple(one.model for one in gpus), answer["reason"]), found

    return wait


def look() -> str:
    """The answer of that process."""
    backends, failed = devices.load()
    reasons = [f"devices of {one.name} cannot be read ({one.why})" for one in failed]
    found: list[DeviceFinding] = []
    for backend in backends:
        for one in devices.survey(backend):
            part = one.parent is not None
            absent = dict(one.absent)
            found.append(
                DeviceFinding(one.kind, one.model, one.driver, part, one.memory_limit_b, absent)
            )
        if backend.why:
            reasons.append(backend.why)
        backend.close()
    return json.dumps(
        {"found": [asdict(one) for one in found], "reason": "; ".join(reasons) or None}
    )
