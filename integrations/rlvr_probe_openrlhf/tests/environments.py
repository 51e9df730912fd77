"""Virtual environments in which releases of OpenRLHF run on a CPU."""

from __future__ import annotations

from pathlib import Path

from rlvr_probe_openrlhf.tests.releases import unpacked

from tests import overlays, vllm_cpu, wheels

__all__ = ["python"]

_LOAD = 'import os; os.environ.get("OPENRLHF_CPU") and __import__("openrlhf_cpu_device")\n'
_LOAD_VLLM = (
    f'{_LOAD}import os; os.environ.get("OPENRLHF_CPU_VLLM") and __import__("openrlhf_cpu_vllm")\n'
)


def python(version: str, *, vllm: bool = False) -> Path:
    """The interpreter of an environment with this release of OpenRLHF and this rlvr-probe.

    The first call for any release takes minutes and a gigabyte, the next ones seconds.

    Args:
        version: Of OpenRLHF.
        vllm: Whether vLLM is in it, with the packages that it wants.
    """
    pins = (wheels.REQUIREMENTS / "openrlhf.txt").read_text()
    dependencies = wheels.installed("openrlhf-dependencies", pins)
    name, folders = f"openrlhf-{version}", [unpacked(version)]
    if vllm:
        return vllm_cpu.python(name, folders, [dependencies], _LOAD_VLLM)
    return overlays.python(name, [*folders, dependencies], _LOAD)
