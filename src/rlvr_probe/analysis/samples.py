"""The trajectories that metrics are of, and how many there are.

Those of training, in batches of which every trajectory is there, each step once. A batch that is
not whole lacks its long trajectories before its short ones: nothing is reported of it.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording import notes
from rlvr_probe.recording.tables import Tables

__all__ = ["COUNTS_QUERY", "SAMPLES", "is_workload", "prepare"]

_SQL: Final = statements(__name__)

COUNTS_QUERY: Final = _SQL["counts"]
"""Steps that were finished, trajectories, groups, tokens; of training alone."""

SAMPLES: Final = _SQL.derived("sample_batch", "sample")
"""By name: what a row is, and the query."""


def prepare(tables: Tables) -> list[str]:
    """Make them; what a reader should know of what they omit."""
    for name, (_, sql) in SAMPLES.items():
        # Batches are few; of a view, they would be found anew for every question.
        kind = "TABLE" if name == "sample_batch" else "VIEW"
        tables.sql.execute(f"CREATE OR REPLACE TEMP {kind} {name} AS {sql}")
    [(whole, cut, rows)] = tables.sql.execute(_SQL["whole"]).fetchall()
    return notes.cut(whole, cut, rows)


def is_workload(tables: Tables) -> bool:
    """Whether the source is a workload, which has lengths and no times."""
    return tables.sql.execute(_SQL["kind"]).fetchall() == [("workload",)]
