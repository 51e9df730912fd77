"""Virtual environments in which releases of OpenRLHF run on a CPU."""

from __future__ import annotations

from pathlib import Path

from rlvr_probe_openrlhf.tests.releases import unpacked

from tests import overlays, wheels

__all__ = ["python"]

_LOAD = 'import os; os.environ.get("OPENRLHF_CPU") and __import__("openrlhf_cpu_device")\n'


def python(version: str) -> Path:
    """The interpreter of an environment with this release of OpenRLHF and this rlvr-probe.

    The first call for any release takes minutes and a gigabyte, the next ones seconds.
    """
    pins = (wheels.REQUIREMENTS / "openrlhf.txt").read_text()
    folders = [unpacked(version), wheels.installed("openrlhf-dependencies", pins)]
    return overlays.python(f"openrlhf-{version}", folders, _LOAD)
