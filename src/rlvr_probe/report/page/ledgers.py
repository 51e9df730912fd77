"""The ledger of the page: by category, by step, by GPU and step, and who came last."""

from __future__ import annotations

from typing import Any

from rlvr_probe.analysis.characterization import LEDGER_QUERY
from rlvr_probe.analysis.ledger import CATEGORIES, MEANING, Ledger
from rlvr_probe.analysis.ledger.ledger import Unit
from rlvr_probe.analysis.page.ledgers import Map, barriers, bars_of, map_of
from rlvr_probe.recording.tables import Tables
from rlvr_probe.report.page.plain import drawn

__all__ = ["ledger_of"]


def ledger_of(tables: Tables, ledger: Ledger | None, unit: Unit) -> dict[str, Any] | None:
    """What the page has of the ledger; None if there is none."""
    if ledger is None:
        return None
    count = len(ledger.gpus)
    steps = bars_of(tables)
    place = {name: at for at, name in enumerate(CATEGORIES)}
    cells: list[list[Any]] = [[0] * len(steps.bars) for _ in CATEGORIES]
    for bar, category, gpu_s in steps.cells.rows:
        cells[place[category]][bar] = drawn(gpu_s)
    waited = map_of(tables, count)
    who, worst = barriers(tables)
    return {
        "categories": [[name, MEANING[name]] for name in CATEGORIES],
        "gpus": count,
        "count": unit.count(count),
        "wall_s": ledger.wall_s,
        "begin_ns": ledger.begin_ns,
        "gpu_s": [ledger.ns[name] / 1e9 for name in CATEGORIES],
        "query": LEDGER_QUERY,
        "steps": steps.steps,
        "bars": {
            "together": steps.together,
            "first": [first for first, _ in steps.bars],
            "last": [last for _, last in steps.bars],
            "cells": cells,
            "query": steps.cells.query,
        },
        "map": {
            **_map(waited, len(steps.bars)),
            "keys": [gpu.key for gpu in ledger.gpus] if waited.together == 1 else [],
        },
        "who": who.dicts,
        "worst": worst.dicts,
        "who_query": who.query,
    }


def _map(waited: Map, bars: int) -> dict[str, Any]:
    """Share of its time that each GPU waited in each step, in percent; -1 where it has none."""
    cells = [[-1] * bars for _ in range(waited.lines)]
    for line, bar, share in waited.cells.rows:
        cells[line][bar] = round(100 * (share or 0))
    return {"together": waited.together, "cells": cells, "query": waited.cells.query}
