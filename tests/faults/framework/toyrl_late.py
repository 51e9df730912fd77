"""A module that attaches while it is imported itself, and that no package of its name installed."""

from __future__ import annotations

import os

if os.environ.get("RLVR_PROBE"):
    import rlvr_probe

    rlvr_probe.attach()


def late() -> int:
    """Hooked once this module is imported to its end."""
    return 3
