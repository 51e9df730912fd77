"""The source of a page: on how many machines it ran, and what of it was lost."""

from __future__ import annotations

from typing import Any, Final

from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["hosts", "lost"]

_SQL: Final = statements(__name__)


def hosts(tables: Tables) -> int:
    """How many hosts its processes ran on."""
    [[count]] = tables.sql.execute(_SQL["hosts"]).fetchall()
    return int(count)


def lost(tables: Tables) -> list[tuple[Any, ...]]:
    """Reasons, and how many records were lost for each; the most first."""
    return tables.sql.execute(_SQL["lost"]).fetchall()
