"""Rollout for what was not trained on, by the share of the tokens that were generated for it."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["find_discarded"]

_SQL: Final = statements(__name__)


def find_discarded(tables: Tables) -> None:
    """Put into ``ledger_move`` what of rollout was thrown away, by step and GPU."""
    sql = tables.sql
    sql.execute(_SQL["thrown"])
    [[some]] = sql.execute(_SQL["count"]).fetchall()
    if some:
        for statement in (_SQL["total"], _SQL["discarded"], _SQL["queued"]):
            sql.execute(statement)
