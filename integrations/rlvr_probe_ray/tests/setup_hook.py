"""A user's own set-up hook of worker processes; by name, as Ray loads it."""

from __future__ import annotations

import os

__all__ = ["setup"]


def setup() -> None:
    """Leaves something that an actor can see."""
    os.environ["SET_UP_BY_USER"] = "yes"
