"""What the sidecar of each node reads of its GPUs, from what they really did."""

from __future__ import annotations

from typing import NamedTuple

from rlvr_probe.model import names
from tests.simulator.books import HELD
from tests.simulator.cast import Cast, uuid
from tests.simulator.draws import SECOND, Purpose, generator
from tests.simulator.setting import Setting
from tests.synthetic import Process

__all__ = ["LOADS", "Devices"]


class _Load(NamedTuple):
    """What a GPU shows while it does something: shares, and watts."""

    sm: float
    tensor: float
    dram: float
    watts: float


_IDLE = _Load(0.0, 0.0, 0.0, 120.0)
_SPINNING = _Load(0.9, 0.0, 0.05, 260.0)
"""Waiting inside a collective: a kernel runs, and computes nothing."""
LOADS = {
    "work.rollout": _Load(0.45, 0.15, 0.6, 420.0),
    "work.old_logprob": _Load(0.9, 0.55, 0.5, 640.0),
    "work.ref_logprob": _Load(0.9, 0.55, 0.5, 640.0),
    "work.update_actor": _Load(0.85, 0.5, 0.5, 680.0),
    "work.weight_sync": _Load(0.1, 0.0, 0.3, 200.0),
    "eval": _Load(0.4, 0.12, 0.5, 400.0),
}
"""What a GPU shows by category of the ledger; in all others it is idle."""
_CLOCK_HZ = 1_980_000_000
_THERMAL = 0x20 | 0x40
_MEMORY_B = 141 * 1024**3


class _Gpu:
    """Sums of one GPU since the last reading, and its counters."""

    __slots__ = ("device", "energy", "hot", "hot_s", "load", "next", "noise", "one", "watts")

    def __init__(self, one: Process, device: int, first: int, seed: int, gpu: int) -> None:
        self.one = one
        self.device = device
        self.next = first
        self.load = [0.0, 0.0, 0.0]
        self.energy = 0.0
        self.watts = _IDLE.watts
        self.hot = 1.0
        self.hot_s = 0.0
        self.noise = generator(seed, Purpose.DEVICE, gpu)


class Devices:
    """One sidecar per node; :meth:`seen` gets every interval of every GPU, in its order."""

    def __init__(self, cast: Cast, setting: Setting, begin: int) -> None:
        scenario = setting.scenario
        self._setting = setting
        self._period = round(SECOND / scenario.hz)
        self._begin = begin
        self._gpus = list[_Gpu]()
        for node in range(scenario.nodes):
            one = cast.member(names.SIDECAR, node=node, start=2 * SECOND, job=f"sidecar-{node}")
            gpus = [gpu for gpu in range(scenario.gpus) if scenario.node(gpu) == node]
            for device, gpu in enumerate(gpus):
                one.event(
                    names.DEVICE, 3 * SECOND, device=device, uuid=uuid(gpu), kind="gpu",
                    vendor="nvidia", model="NVIDIA H200", driver="580.95.05", parent=None,
                    memory_limit_b=_MEMORY_B, hz=scenario.hz, absent=["ecc_errors: not supported"],
                )  # fmt: skip
                first = begin + self._period + gpu
                self._gpus.append(_Gpu(one, device, first, setting.draws.seed, gpu))

    def seen(self, gpu: int, step: int, begin: int, end: int, category: str) -> None:
        """A GPU did something for a while."""
        one = self._gpus[gpu]
        hot = self._setting.effects.throttle(gpu, step)
        load = _SPINNING if category == HELD else LOADS.get(category, _IDLE)
        while one.next <= end:
            self._add(one, load, hot, one.next - begin)
            self._read(one)
            begin = one.next
            one.next += self._period
        self._add(one, load, hot, end - begin)

    def _add(self, one: _Gpu, load: _Load, hot: float, ns: int) -> None:
        seconds = ns / SECOND
        one.load[0] += load.sm * seconds
        one.load[1] += load.tensor * seconds
        one.load[2] += load.dram * seconds
        one.watts = load.watts / hot if hot > 1 else load.watts
        one.energy += one.watts * seconds
        one.hot = hot
        if hot > 1:
            one.hot_s += seconds

    def _read(self, one: _Gpu) -> None:
        noise = 1 + one.noise.gauss(0.0, 0.005)
        window = self._period / SECOND
        sm, tensor, dram = (min(1.0, round(share / window * noise, 4)) for share in one.load)
        one.load = [0.0, 0.0, 0.0]
        one.one.event(
            names.DEVICE_SAMPLE, one.next, device=one.device, window_s=round(window, 4),
            energy_j=round(one.energy, 3), sm_active=sm, tensor_active=tensor, dram_active=dram,
            power_w=round(one.watts * noise, 3), memory_b=_MEMORY_B * 7 // 10,
        )  # fmt: skip
        hot = one.hot > 1
        one.one.event(
            names.DEVICE_STATE, one.next, device=one.device, utilization=float(sm > 0),
            sm_clock_hz=round(_CLOCK_HZ / one.hot), temperature_c=88 if hot else 62,
            throttle_reasons=_THERMAL if hot else 0, throttle_thermal_s=round(one.hot_s, 3),
        )  # fmt: skip
