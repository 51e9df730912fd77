"""The ledger by step, by GPU and step, and who came last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rlvr_probe.analysis.page.selection import together
from rlvr_probe.analysis.results import Answer, query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["Bars", "Map", "barriers", "bars_of", "map_of"]

_SQL: Final = statements(__name__)

_BARS: Final = 240
"""Bars of the chart of steps; of more steps, several that follow one another make one."""

_LINES: Final = 160
"""Lines of the map of GPUs; of more GPUs, several make one."""


@dataclass(frozen=True, slots=True)
class Bars:
    """The steps of the run, and the ledger of each.

    Attributes:
        steps: How many there are.
        together: Steps in a bar.
        bars: First and last number of a step in each.
        cells: Bar, category and GPU time, s.
    """

    steps: int
    together: int
    bars: Sequence[tuple[Any, ...]]
    cells: Answer


@dataclass(frozen=True, slots=True)
class Map:
    """How long each GPU waited in each bar.

    Attributes:
        together: GPUs in a line.
        lines: How many there are.
        cells: Line, bar and share of the time, 0..1.
    """

    together: int
    lines: int
    cells: Answer


def bars_of(tables: Tables) -> Bars:
    """The ledger by step; the bars stay, in the table ``page_step``."""
    [[steps]] = tables.sql.execute(_SQL["steps"]).fetchall()
    of = together(steps, _BARS)
    query(tables, _SQL["make_bars"], together=of)
    bars = tables.sql.execute(_SQL["bars"]).fetchall()
    numbers = [(first, last) for _, first, last, *_ in bars]
    return Bars(steps, of, numbers, query(tables, _SQL["by_bar"]))


def map_of(tables: Tables, gpus: int) -> Map:
    """Waiting of ``gpus`` GPUs in the bars of :func:`bars_of`."""
    of = together(gpus, _LINES)
    return Map(of, -(-gpus // of), query(tables, _SQL["waited"], lines=of))


def barriers(tables: Tables) -> tuple[Answer, Answer]:
    """Who came last to barriers, and the most expensive barriers."""
    return query(tables, _SQL["who"]), query(tables, _SQL["worst"])
