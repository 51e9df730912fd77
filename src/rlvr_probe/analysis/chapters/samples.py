"""Which trajectories the chapters speak of.

Those of training, in batches of which every trajectory is there, each step once. A batch that is
not whole lacks its long trajectories before its short ones: of it, nothing is said.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.recording import remarks
from rlvr_probe.recording.tables import Tables

__all__ = ["VIEWS", "is_workload", "prepare"]

VIEWS: Final = {
    "sample_batch": (
        "batches that are counted: of training, whole (if any is), of a step that stands; `unit`"
        " is the batch, or -1 where groups are generated one by one for a queue",
        """
        SELECT batch.*, number, CASE WHEN queued THEN -1 ELSE batch_id END AS unit
        FROM kept_batch AS batch LEFT JOIN step USING (step_id)
        WHERE mode = 'train'
          AND (whole OR NOT EXISTS (FROM kept_batch WHERE mode = 'train' AND whole))
        """,
    ),
    "sample": (
        "trajectories of these batches",
        """
        SELECT trajectory.*, number, unit, workload_step FROM trajectory
        JOIN (SELECT batch_id, number, unit, workload_step FROM sample_batch) USING (batch_id)
        """,
    ),
}
"""By name: what a row is, and the query."""


def prepare(tables: Tables) -> list[str]:
    """Make the views; what a reader should know of what they leave out."""
    for name, (_, sql) in VIEWS.items():
        tables.sql.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {sql}")
    [(whole, cut, rows)] = tables.sql.execute(
        """
        SELECT count(*) FILTER (whole), count(*) FILTER (NOT whole),
          sum("rows") FILTER (NOT whole)
        FROM kept_batch WHERE mode = 'train'
        """
    ).fetchall()
    return remarks.cut(whole, cut, rows)


def is_workload(tables: Tables) -> bool:
    """Whether the source is a workload, which has lengths and knows no moments."""
    return tables.sql.execute("SELECT kind FROM run").fetchall() == [("workload",)]
