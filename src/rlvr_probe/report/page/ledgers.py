"""The ledger of the page: by category, by step, by GPU and step, and who came last."""

from __future__ import annotations

from typing import Any, Final

from rlvr_probe.analysis.ledger import CATEGORIES, MEANING, Ledger
from rlvr_probe.analysis.ledger.unit import Unit
from rlvr_probe.recording.tables import Tables
from rlvr_probe.report.page.plain import drawn, sampled

__all__ = ["ledger_of"]

_BARS: Final = 240
"""Bars of the chart of steps; of more steps, several that follow one another make one."""

_LINES: Final = 160
"""Lines of the map of GPUs; of more GPUs, several make one."""

_LAST: Final = 200
"""Barriers that are listed, most expensive first."""

_TOTAL: Final = "SELECT category, sum(ns) / 1e9 AS gpu_s FROM ledger GROUP BY category"
_BY_STEP: Final = """\
SELECT bar, category, sum(ns) / 1e9 AS gpu_s
FROM ledger JOIN page_step USING (step_id) GROUP BY bar, category"""
_MAP: Final = """\
SELECT gpu // $lines AS line, bar, min(share) AS share
FROM (SELECT gpu, bar, coalesce(sum(ns) FILTER (starts_with(category, 'wait.')), 0)
          / nullif(sum(ns), 0)
          AS share
      FROM ledger JOIN page_step USING (step_id) GROUP BY gpu, bar)
GROUP BY line, bar ORDER BY line, bar"""
_WHO: Final = """\
SELECT barrier, last_kind, name, engine, rank, count(*) AS times, sum(gpu_ns) / 1e9 AS gpu_s,
       arg_max(step_id, gpu_ns) AS worst_step, arg_max(trajectory_id, gpu_ns) AS worst_trajectory
FROM barrier_wait GROUP BY barrier, last_kind, name, engine, rank
ORDER BY gpu_s DESC LIMIT 40"""
_WORST: Final = f"""\
SELECT step_id, barrier, gpu_ns / 1e9 AS gpu_s, last_kind, name, engine, rank, process,
       trajectory_id, turn
FROM barrier_wait ORDER BY gpu_ns DESC LIMIT {_LAST}"""


def ledger_of(tables: Tables, ledger: Ledger | None, unit: Unit) -> dict[str, Any] | None:
    """What the page has of the ledger; None if there is none."""
    if ledger is None:
        return None
    sql = tables.sql
    count = len(ledger.gpus)
    [[steps]] = sql.execute("SELECT count(*) FROM step WHERE number >= 1").fetchall()
    together = sampled(steps, _BARS)
    sql.execute(
        "CREATE OR REPLACE TEMP TABLE page_step AS"
        " SELECT step_id, (row_number() OVER (ORDER BY start_ns, step_id) - 1)"
        f" // {together} AS bar FROM step WHERE number >= 1"
    )
    bars = sql.execute(
        "SELECT bar, min(number), max(number), min(step_id), count(*) FROM page_step"
        " JOIN step USING (step_id) GROUP BY bar ORDER BY bar"
    ).fetchall()
    place = {name: at for at, name in enumerate(CATEGORIES)}
    cells: list[list[Any]] = [[0] * len(bars) for _ in CATEGORIES]
    for bar, category, gpu_s in sql.execute(_BY_STEP).fetchall():
        cells[place[category]][bar] = drawn(gpu_s)
    lines = sampled(count, _LINES)
    return {
        "categories": [[name, MEANING[name]] for name in CATEGORIES],
        "gpus": count,
        "count": unit.count(count),
        "wall_s": (ledger.end_ns - ledger.begin_ns) / 1e9,
        "begin_ns": ledger.begin_ns,
        "gpu_s": [ledger.ns[name] / 1e9 for name in CATEGORIES],
        "query": _TOTAL,
        "steps": steps,
        "bars": {
            "together": together,
            "first": [first for _, first, *_ in bars],
            "last": [last for _, _, last, *_ in bars],
            "cells": cells,
            "query": _BY_STEP,
        },
        "map": {
            **_map(tables, lines, -(-count // lines), len(bars)),
            "keys": [gpu.key for gpu in ledger.gpus] if lines == 1 else [],
        },
        "who": _dicts(tables, _WHO),
        "worst": _dicts(tables, _WORST),
        "who_query": _WHO,
    }


def _map(tables: Tables, together: int, lines: int, bars: int) -> dict[str, Any]:
    """Share of its time that each GPU waited in each step, in percent; -1 where it has none.

    Of several GPUs in a line it is that of the one that waited least: it is who is waited for.
    """
    cells = [[-1] * bars for _ in range(lines)]
    query = _MAP.replace("$lines", str(together))
    for line, bar, share in tables.sql.execute(query).fetchall():
        cells[line][bar] = round(100 * (share or 0))
    return {"together": together, "cells": cells, "query": query}


def _dicts(tables: Tables, sql: str) -> list[dict[str, Any]]:
    done = tables.sql.execute(sql)
    names = [str(one[0]) for one in done.description or ()]
    return [dict(zip(names, row, strict=True)) for row in done.fetchall()]
