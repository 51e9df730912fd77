"""How lengths are spread over the steps of the run."""

from __future__ import annotations

from typing import Any, Final

from rlvr_probe.analysis.page.selection import together
from rlvr_probe.analysis.results import query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["lengths_of"]

_SQL: Final = statements(__name__)
_CLASSES: Final = 4
"""Classes of length to a factor of two."""
_COLUMNS: Final = 240
"""Columns of the picture; of more steps, several make one."""


def lengths_of(tables: Tables) -> dict[str, Any] | None:
    """How many responses of each length there are in each step; None of a source without any."""
    sql = tables.sql
    [[steps]] = sql.execute(_SQL["steps"]).fetchall()
    of = together(steps, _COLUMNS)
    query(tables, _SQL["make_bars"], together=of)
    bars = sql.execute(_SQL["bars"]).fetchall()
    cells = query(tables, _SQL["classes"], classes=_CLASSES)
    if not cells.rows:
        return None
    [[cap]] = sql.execute(_SQL["cap"]).fetchall()
    return {
        "together": of,
        "first": [first for first, _ in bars],
        "last": [last for _, last in bars],
        "per_doubling": _CLASSES,
        "cells": cells.rows,
        "cap": cap,
        "query": cells.query,
    }
