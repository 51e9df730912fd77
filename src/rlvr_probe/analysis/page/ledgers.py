"""The ledger of the page: by category, by step, by GPU and step, and who came last."""

from __future__ import annotations

from typing import Any, Final

from rlvr_probe.analysis.characterization import LEDGER_QUERY
from rlvr_probe.analysis.ledger import CATEGORIES, MEANING, Ledger
from rlvr_probe.analysis.ledger.ledger import Unit
from rlvr_probe.analysis.page.selection import together
from rlvr_probe.analysis.results import query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["ledger_of"]

_SQL: Final = statements(__name__)

_BARS: Final = 240
"""Bars of the chart of steps; of more steps, several that follow one another make one."""

_LINES: Final = 160
"""Lines of the map of GPUs; of more GPUs, several make one."""


def ledger_of(tables: Tables, ledger: Ledger | None, unit: Unit) -> dict[str, Any] | None:
    """What the page has of the ledger; None if there is none."""
    if ledger is None:
        return None
    count = len(ledger.gpus)
    [[steps]] = tables.sql.execute(_SQL["steps"]).fetchall()
    of = together(steps, _BARS)
    query(tables, _SQL["make_bars"], together=of)
    bars = tables.sql.execute(_SQL["bars"]).fetchall()
    by_bar = query(tables, _SQL["by_bar"])
    index = {name: at for at, name in enumerate(CATEGORIES)}
    cells: list[list[float]] = [[0] * len(bars) for _ in CATEGORIES]
    for bar, category, gpu_s in by_bar.rows:
        cells[index[category]][bar] = gpu_s
    who = query(tables, _SQL["who"])
    return {
        "categories": [[name, MEANING[name]] for name in CATEGORIES],
        "gpus": count,
        "count": unit.count(count),
        "wall_s": ledger.wall_s,
        "begin_ns": ledger.begin_ns,
        "gpu_s": [ledger.ns[name] / 1e9 for name in CATEGORIES],
        "query": LEDGER_QUERY,
        "steps": steps,
        "bars": {
            "together": of,
            "first": [first for first, _ in bars],
            "last": [last for _, last in bars],
            "cells": cells,
            "query": by_bar.query,
        },
        "map": _map(tables, count, len(bars)),
        "who": who.dicts,
        "worst": query(tables, _SQL["worst"]).dicts,
        "who_query": who.query,
    }


def _map(tables: Tables, gpus: int, bars: int) -> dict[str, Any]:
    """Share of its time that each GPU waited in each step, in percent; -1 where it has none."""
    of = together(gpus, _LINES)
    waited = query(tables, _SQL["waited"], lines=of)
    names = query(tables, _SQL["names"]).dicts
    cells = [[-1] * bars for _ in range(-(-gpus // of))]
    for line, bar, share in waited.rows:
        cells[line][bar] = round(100 * (share or 0))
    ends = [(names[at], names[min(at + of, gpus) - 1]) for at in range(0, gpus, of)]
    return {"together": of, "cells": cells, "ends": ends, "query": waited.query}
