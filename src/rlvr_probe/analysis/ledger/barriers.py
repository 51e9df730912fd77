"""Every barrier at which GPUs waited, what it cost, and who came to it last.

Of ranks that wait for each other the last is who waited least: so no clock of another machine is
asked.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["find_barriers"]

_SQL: Final = statements(__name__)


def find_barriers(tables: Tables) -> None:
    """Make ``barrier_wait``; what is waited in steps that were thrown away is in it too."""
    for name in (
        "lived", "called", "waited", "own", "tools", "met", "served", "rewarded", "gathered",
        "starved", "idle", "held", "rest",
    ):  # fmt: skip
        tables.sql.execute(_SQL[name])
