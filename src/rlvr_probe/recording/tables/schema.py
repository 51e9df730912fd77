"""Every table that the analysis asks its questions of: ``tables.sql`` says what each column is.

Times are ns on the clock of the run: 0 is the start of its first process. Unknown is NULL, never 0.
Steps that were thrown away are in the tables; the views of :data:`VIEWS` leave them out.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.recording.columns import tables_of

__all__ = ["BY_NAME", "TABLES", "VIEWS"]

BY_NAME: Final = tables_of("rlvr_probe.recording.tables", "tables.sql")

TABLES: Final = tuple(BY_NAME.values())
"""In the order of the documentation."""

_GONE = "SELECT step_id FROM step WHERE superseded_by IS NOT NULL"

VIEWS: Final = {
    "kept_step": "SELECT * FROM step WHERE superseded_by IS NULL",
    **{
        f"kept_{table}": f"SELECT * FROM {table} WHERE step_id IS NULL OR step_id NOT IN ({_GONE})"
        for table in ("span", "rpc", "batch", "trajectory")
    },
}
"""By name: the rows of a table that belong to no step that was thrown away."""
