"""Runs that generate for a queue: what both of its sides wait for."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.ledger.categories import layers
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["paint_queue"]

_SQL: Final = statements(__name__)


def paint_queue(tables: Tables) -> None:
    """Paint waiting for the queue, on both sides of it; makes ``queue_group``."""
    tables.sql.execute(_SQL["group"])
    tables.sql.execute(_SQL["length"])
    tables.sql.execute(_SQL["data"], layers("queue"))
    tables.sql.execute(_SQL["idle"], layers("idle", "full", "weight_sync"))
    tables.sql.execute(_SQL["decoding"], layers("wait.rollout"))
