"""Published workloads and the tool that accepts them: beside this repository, not in it.

Without a variable both are looked for in a folder ``shared`` beside the checkout.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["JUDGE", "WORKLOADS"]

_SHARED = Path(__file__).resolve().parents[2] / "shared"

WORKLOADS = Path(os.environ.get("POLYTRACE_DATA") or _SHARED / "data" / "polytrace")
"""Folder of workloads as PolyTrace's own collectors wrote them."""

JUDGE = Path(os.environ.get("POLYTRACE_JUDGE") or _SHARED / "tools" / "polytrace_accept.py")
"""Script that runs PolyTrace's own readers on a workload."""
