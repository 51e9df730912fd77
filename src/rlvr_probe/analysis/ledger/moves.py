"""Time that is called something else once it is known what came of it."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.ledger.discarded import find_discarded
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["make_cells"]

_SQL: Final = statements(__name__)


def make_cells(tables: Tables) -> None:
    """Make ``ledger`` from ``segment``: GPU time by step, GPU and category, ns."""
    sql = tables.sql
    sql.execute(_SQL["moves"])
    find_discarded(tables)
    sql.execute(_SQL["probe"])
    sql.execute(_SQL["waited"])
    sql.execute(_SQL["cells"])
