"""Pictures that no chapter has: how lengths are spread over the steps of the run."""

from __future__ import annotations

from typing import Any, Final

from rlvr_probe.recording.tables import Tables
from rlvr_probe.report.page.plain import drawn, sampled

__all__ = ["lengths_of"]

_COLUMNS: Final = 240
_CLASSES: Final = 4
"""Classes of length to a factor of two."""

_COUNT: Final = """\
SELECT bar, CASE WHEN response_tokens < 1 THEN 0
       ELSE floor($classes * log2(response_tokens))::INTEGER END AS class,
       count(*) AS trajectories
FROM trajectory JOIN page_length_step USING (step_id)
WHERE coalesce(mode, 'train') = 'train' AND response_tokens IS NOT NULL
GROUP BY bar, class ORDER BY bar, class"""


def lengths_of(tables: Tables) -> dict[str, Any] | None:
    """How many responses of each length there are in each step; None of a source without any."""
    sql = tables.sql
    [[steps]] = sql.execute(
        "SELECT count(DISTINCT step_id) FROM trajectory WHERE coalesce(mode, 'train') = 'train'"
    ).fetchall()
    together = sampled(steps, _COLUMNS)
    sql.execute(f"""
        CREATE OR REPLACE TEMP TABLE page_length_step AS
        SELECT step_id, number,
               (row_number() OVER (ORDER BY start_ns NULLS LAST, number, step_id) - 1)
               // {together} AS bar
        FROM step WHERE superseded_by IS NULL AND step_id IN
            (SELECT step_id FROM trajectory WHERE coalesce(mode, 'train') = 'train')
    """)
    bars = sql.execute(
        "SELECT min(number), max(number) FROM page_length_step GROUP BY bar ORDER BY bar"
    ).fetchall()
    query = _COUNT.replace("$classes", str(_CLASSES))
    cells = sql.execute(query).fetchall()
    if not cells:
        return None
    [[cap]] = sql.execute("SELECT max_response_tokens FROM run").fetchall()
    return {
        "together": together,
        "first": [first for first, _ in bars],
        "last": [last for _, last in bars],
        "per_doubling": _CLASSES,
        "cells": drawn(cells),
        "cap": cap,
        "query": query,
    }
