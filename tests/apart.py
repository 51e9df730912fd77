"""All that a characterization says, and leaves in its tables, for engines to be compared by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlvr_probe.analysis.characterization import Engine, characterize
from rlvr_probe.recording.tables import Tables, open_tables
from rlvr_probe.report.characterize import to_document
from rlvr_probe.report.page.contents import document

__all__ = ["said"]


def said(run: Path, engine: Engine) -> dict[str, Any]:
    """What is said of a run, as JSON has it: the document, the page, and what was made for them."""
    with open_tables(run, threads=engine.threads, decode=engine.decode, signals=False) as tables:
        found = characterize(tables, engine=engine)
        page = document(tables, found)
        # Among them values that earlier ones gave, to their last digit.
        del page["queries"]
        answers = {"document": to_document(found), "made": made(tables), "page": page}
        return dict(json.loads(json.dumps(answers)))


def made(tables: Tables) -> dict[str, int]:
    """Rows of every temporary table and view, by name."""
    found = tables.sql.execute(
        "SELECT table_name FROM duckdb_tables() WHERE temporary UNION SELECT view_name"
        " FROM duckdb_views() WHERE temporary AND NOT internal ORDER BY ALL"
    )
    counts = {}
    for (name,) in found.fetchall():
        [(count,)] = tables.sql.execute(f'SELECT count(*) FROM "{name}"').fetchall()
        counts[name] = count
    return counts
