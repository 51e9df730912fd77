"""Virtual environments in which releases of verl run on a CPU."""

from __future__ import annotations

from pathlib import Path

from rlvr_probe_verl.tests.releases import unpacked

from tests import overlays, vllm_cpu, wheels

__all__ = ["DEVICE", "python"]

DEVICE = "verl_cpu_device"
"""Module that every Python process of an environment loads if its variable asks for it."""

_LOAD = f'import os; os.environ.get("VERL_CPU_DEVICE") and __import__("{DEVICE}")\n'


_LOAD_VLLM = f'{_LOAD}import os; os.environ.get("VERL_CPU_VLLM") and __import__("verl_cpu_vllm")\n'


def python(version: str, *, vllm: bool = False) -> Path:
    """The interpreter of an environment with this release of verl and this rlvr-probe.

    The first call for any release takes minutes and a gigabyte, the next ones seconds.

    Args:
        version: Of verl.
        vllm: Whether vLLM is in it, with the packages that it wants.
    """
    pins = (wheels.REQUIREMENTS / "verl.txt").read_text()
    dependencies = wheels.installed("verl-dependencies", pins)
    if vllm:
        folders = [unpacked(version), vllm_cpu.named_vllm()]
        return vllm_cpu.python(f"verl-{version}", folders, [dependencies], _LOAD_VLLM)
    return overlays.python(f"verl-{version}", [unpacked(version), dependencies], _LOAD)
