"""Every table that the analysis asks its questions of, each column with a sentence and a unit.

Times are ns on the clock of the run: 0 is the start of its first process. Unknown is NULL, never 0.
Steps that were thrown away are in the tables; the views of :data:`VIEWS` leave them out.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.recording.columns import Table
from rlvr_probe.recording.tables.device_tables import DEVICE_TABLES
from rlvr_probe.recording.tables.generated_tables import GENERATED_TABLES
from rlvr_probe.recording.tables.run_tables import RUN_TABLES

__all__ = ["BY_NAME", "TABLES", "VIEWS"]

TABLES: Final[tuple[Table, ...]] = (*RUN_TABLES, *GENERATED_TABLES, *DEVICE_TABLES)
"""In the order of the documentation."""

BY_NAME: Final = {table.name: table for table in TABLES}

_GONE = "SELECT step_id FROM step WHERE superseded_by IS NOT NULL"

VIEWS: Final = {
    "kept_step": "SELECT * FROM step WHERE superseded_by IS NULL",
    **{
        f"kept_{table}": f"SELECT * FROM {table} WHERE step_id IS NULL OR step_id NOT IN ({_GONE})"
        for table in ("span", "rpc", "batch", "trajectory")
    },
}
"""By name: the rows of a table that belong to no step that was thrown away."""
