"""How lengths are spread over the steps of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rlvr_probe.analysis.page.selection import together
from rlvr_probe.analysis.results import Answer, query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["CLASSES", "LengthClasses", "length_classes"]

CLASSES: Final = 4
"""Classes of length to a factor of two."""

_SQL: Final = statements(__name__)
_COLUMNS: Final = 240
"""Columns of the picture; of more steps, several make one."""


@dataclass(frozen=True, slots=True)
class LengthClasses:
    """How many responses of each length there are in each step.

    Attributes:
        together: Steps in a column.
        bars: First and last number of a step in each.
        cells: Column, class and trajectories.
        cap: Longest response that is allowed, tokens; None if it is unknown.
    """

    together: int
    bars: Sequence[tuple[Any, ...]]
    cells: Answer
    cap: int | None


def length_classes(tables: Tables) -> LengthClasses | None:
    """The classes of the trajectories of training; None of a source without any."""
    sql = tables.sql
    [[steps]] = sql.execute(_SQL["steps"]).fetchall()
    of = together(steps, _COLUMNS)
    query(tables, _SQL["make_bars"], together=of)
    bars = sql.execute(_SQL["bars"]).fetchall()
    cells = query(tables, _SQL["classes"], classes=CLASSES)
    if not cells.rows:
        return None
    [[cap]] = sql.execute(_SQL["cap"]).fetchall()
    return LengthClasses(of, bars, cells, cap)
