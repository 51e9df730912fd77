"""Virtual environments in which releases of verl run on a CPU."""

from __future__ import annotations

from pathlib import Path

from rlvr_probe_verl.tests.releases import unpacked

from tests import overlays, wheels

__all__ = ["DEVICE", "python"]

DEVICE = "verl_cpu_device"
"""Module that every Python process of an environment loads if its variable asks for it."""

_LOAD = f'import os; os.environ.get("VERL_CPU_DEVICE") and __import__("{DEVICE}")\n'


def python(version: str) -> Path:
    """The interpreter of an environment with this release of verl and this rlvr-probe.

    The first call for any release takes minutes and a gigabyte, the next ones seconds.
    """
    pins = (wheels.REQUIREMENTS / "verl.txt").read_text()
    folders = [unpacked(version), wheels.installed("verl-dependencies", pins)]
    return overlays.python(f"verl-{version}", folders, _LOAD)
