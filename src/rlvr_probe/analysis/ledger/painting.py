"""What stages, calls, engines and queues say of each GPU: work, waiting, dispatch."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.ledger.categories import STAGE_CALL, STAGE_WAIT, STAGE_WORK, cases, layers
from rlvr_probe.analysis.statements import OVERLAP, fill, islands, make, statements
from rlvr_probe.recording.between_steps import BETWEEN
from rlvr_probe.recording.tables import Tables

__all__ = ["find_rollout", "find_stages", "paint_queue", "paint_rollout", "paint_stages"]

_SQL: Final = statements(__name__)


def find_stages(tables: Tables) -> None:
    """Make ``ledger_stage``, ``ledger_window`` and what ranks did in calls."""
    sql = tables.sql
    sql.execute(_SQL["told"])
    sql.execute(_SQL["stage"], {"stages": [*STAGE_WORK, "wait"]})
    sql.execute(_SQL["window"], {"between": BETWEEN})
    for name in ("called", "placed", "part"):
        sql.execute(_SQL[name])
    sql.execute(fill(_SQL["cluster"], islands=islands(_SQL["called_in"], "stage")))
    sql.execute(_SQL["clock"])


def paint_stages(tables: Tables) -> None:
    """Paint what stages and calls show; :func:`find_rollout` has found what engines show."""
    sql = tables.sql
    wait, work = cases("stage.name", STAGE_WAIT), cases("stage.name", STAGE_WORK)
    numbers = layers("eval", "dispatch", "wait.rollout", "wait.reward")
    sql.execute(fill(_SQL["stages"], work=work, wait=wait), numbers)
    sql.execute(fill(_SQL["calls"], call=cases("stage.name", STAGE_CALL, "other")))
    sql.execute(fill(_SQL["waits"], wait=wait))
    sql.execute(fill(_SQL["missed"], wait=wait), layers("unknown"))
    sql.execute(_SQL["between"], layers("bubble"))


def find_rollout(tables: Tables) -> None:
    """Make the tables of what engines did; ``ledger_stage`` is there."""
    tables.sql.execute(_SQL["home"])
    turns = _SQL.derived("ledger_call", rows=_SQL["engine_turn"], overlap=OVERLAP)
    make(tables, turns, by_step=True)
    loose = fill(_SQL["ledger_call"], rows=_SQL["engine_call"], overlap=OVERLAP)
    tables.sql.execute(f"INSERT INTO ledger_call {loose}")
    calls = islands("ledger_call", "attempt, engine, batch_id")
    tables.sql.execute(fill(_SQL["engine_busy"], islands=calls))
    tables.sql.execute(_SQL["engine_batch"])
    tables.sql.execute(_SQL["rollout"])


def paint_rollout(tables: Tables) -> None:
    """Paint work of engines, and waiting for what they generate."""
    tables.sql.execute(_SQL["engine_work"], layers("eval", "rollout"))
    tables.sql.execute(_SQL["engine_waits"], layers("wait.rollout", "wait.reward"))


def paint_queue(tables: Tables) -> None:
    """Paint waiting for the queue, on both sides of it; makes ``queue_group``."""
    tables.sql.execute(_SQL["group"])
    tables.sql.execute(_SQL["length"])
    tables.sql.execute(_SQL["queue_data"], layers("queue"))
    tables.sql.execute(_SQL["queue_idle"], layers("idle", "full", "weight_sync"))
    tables.sql.execute(_SQL["decoding"], layers("wait.rollout"))
