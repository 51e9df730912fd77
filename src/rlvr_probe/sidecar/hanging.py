"""Readers of devices that a driver holds, so that not even killing them ends them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from rlvr_probe.sidecar.reader import COMM

__all__ = ["left_hanging"]


def left_hanging(proc: Path = Path("/proc")) -> int:
    """Readers of this user on this node, of any sidecar, that were killed and are still there.

    Args:
        proc: Where the kernel tells of processes.
    """
    try:
        folders = list(proc.iterdir())
    except OSError:  # there is no such place here
        return 0
    return sum(_hangs(folder) for folder in folders if folder.name.isdecimal())


def _hangs(folder: Path) -> bool:
    try:
        if (folder / "comm").read_text().strip() != COMM or folder.stat().st_uid != os.geteuid():
            return False
        status = (folder / "status").read_text()
    except OSError:  # gone meanwhile
        return False
    told = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    pending = int(told.get("SigPnd", "0"), 16) | int(told.get("ShdPnd", "0"), 16)
    is_over = told.get("State", "").startswith(("Z", "X"))
    return not is_over and bool(pending >> (signal.SIGKILL - 1) & 1)
