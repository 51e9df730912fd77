"""What engine calls and trajectories tell of each GPU."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.intervals import OVERLAP, islands
from rlvr_probe.analysis.ledger.categories import layers
from rlvr_probe.analysis.statements import fill, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["find_rollout", "paint_rollout"]

_SQL: Final = statements(__name__)


def find_rollout(tables: Tables) -> None:
    """Make the tables of what engines did; ``ledger_stage`` is there."""
    tables.sql.execute(_SQL["home"])
    tables.sql.execute(fill(_SQL["call"], overlap=OVERLAP))
    calls = islands("ledger_call", "attempt, engine, batch_id")
    tables.sql.execute(fill(_SQL["busy"], islands=calls))
    tables.sql.execute(_SQL["batch"])
    tables.sql.execute(_SQL["rollout"])


def paint_rollout(tables: Tables) -> None:
    """Paint work of engines, and waiting for what they generate."""
    tables.sql.execute(_SQL["work"], layers("eval", "rollout"))
    tables.sql.execute(_SQL["waiting"], layers("wait.rollout", "wait.reward"))
