"""Variables that processes of tests start with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["RAY_START", "ROOMY", "surroundings"]

RAY_START: Final = Path(__file__).with_name("ray_start")
"""What a job needs in its ``PYTHONPATH`` to start Ray on a machine that is busy."""

ROOMY = {"RLVR_PROBE_FREE_B": "0"}
"""What is recorded does not depend on how full the disk of the machine is."""


def surroundings(*without: str) -> dict[str, str]:
    """Those of this process but the probe's own, and :data:`ROOMY`.

    Args:
        without: What names of others that are left out begin with.
    """
    left_out = ("RLVR_PROBE", *without)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return kept | ROOMY
