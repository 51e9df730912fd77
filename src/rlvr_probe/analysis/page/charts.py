"""Rows of the page's charts of the ledger and of lengths, and who is behind the ids in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rlvr_probe.analysis.characterization import LEDGER_QUERY
from rlvr_probe.analysis.ledger import CATEGORIES, MEANING, Ledger
from rlvr_probe.analysis.ledger.ledger import Unit
from rlvr_probe.analysis.page.timeline import together
from rlvr_probe.analysis.results import query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["hosts", "ledger_of", "lengths_of", "lost", "references"]

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
    steps, bars = _bars(tables, _BARS, "steps", "make_bars", "bars")
    by_bar = query(tables, _SQL["by_bar"])
    index = {name: at for at, name in enumerate(CATEGORIES)}
    cells: list[list[float]] = [[0] * len(bars["first"]) for _ in CATEGORIES]
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
        "bars": {**bars, "cells": cells, "query": by_bar.query},
        "map": _map(tables, count, len(bars["first"])),
        "who": who.dicts,
        "worst": query(tables, _SQL["worst"]).dicts,
        "who_query": who.query,
    }


def _bars(
    tables: Tables, most: int, count: str, make: str, bars: str
) -> tuple[int, dict[str, Any]]:
    """How many steps there are; of each bar the first and the last."""
    [[steps]] = tables.sql.execute(_SQL[count]).fetchall()
    of = together(steps, most)
    query(tables, _SQL[make], together=of)
    rows = tables.sql.execute(_SQL[bars]).fetchall()
    first, last = ([row[at] for row in rows] for at in (0, 1))
    return steps, {"together": of, "first": first, "last": last}


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


_CLASSES: Final = 4
"""Classes of length to a factor of two."""
_COLUMNS: Final = 240
"""Columns of the picture; of more steps, several make one."""


def lengths_of(tables: Tables) -> dict[str, Any] | None:
    """How many responses of each length there are in each step; None of a source without any."""
    _, bars = _bars(tables, _COLUMNS, "length_steps", "make_length_bars", "length_bars")
    cells = query(tables, _SQL["classes"], classes=_CLASSES)
    if not cells.rows:
        return None
    [[cap]] = tables.sql.execute(_SQL["cap"]).fetchall()
    return {**bars, "per_doubling": _CLASSES, "cells": cells.rows, "cap": cap, "query": cells.query}


_KINDS: Final = ("trajectory", "process", "device", "step")


def references(tables: Tables, ids: Mapping[str, Iterable[int]]) -> dict[str, dict[str, Any]]:
    """What is known of each id, by kind."""
    found = dict[str, dict[str, Any]]()
    for kind in _KINDS:
        asked = sorted(set(ids.get(kind, ())))
        if asked:
            answer = query(tables, _SQL[kind], ids=asked)
            found[kind] = {
                str(row.pop(answer.columns[0])): {
                    name: value for name, value in row.items() if value is not None
                }
                for row in answer.dicts
            }
    return found


def hosts(tables: Tables) -> int:
    """How many hosts its processes ran on."""
    [[count]] = tables.sql.execute(_SQL["hosts"]).fetchall()
    return int(count)


def lost(tables: Tables) -> list[tuple[Any, ...]]:
    """Reasons, and how many records were lost for each; the most first."""
    return tables.sql.execute(_SQL["lost"]).fetchall()
