"""What stages and calls tell of each GPU: work, waiting for the last rank, dispatch."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.intervals import islands
from rlvr_probe.analysis.ledger.categories import STAGE_CALL, STAGE_WAIT, STAGE_WORK, cases, layers
from rlvr_probe.analysis.statements import fill, statements
from rlvr_probe.recording.between import BETWEEN
from rlvr_probe.recording.tables import Tables

__all__ = ["find_stages", "paint_stages"]

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
    """Paint what stages and calls tell; it is known of which rollouts more is."""
    sql = tables.sql
    wait, work = cases("stage.name", STAGE_WAIT), cases("stage.name", STAGE_WORK)
    numbers = layers("eval", "dispatch", "wait.rollout", "wait.reward")
    sql.execute(fill(_SQL["stages"], work=work, wait=wait), numbers)
    sql.execute(fill(_SQL["calls"], call=cases("stage.name", STAGE_CALL, "other")))
    sql.execute(fill(_SQL["waits"], wait=wait))
    sql.execute(fill(_SQL["missed"], wait=wait), layers("unknown"))
    sql.execute(_SQL["between"], layers("bubble"))
