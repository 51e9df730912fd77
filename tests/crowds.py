"""A run of very many GPUs and steps as tables, which no recording was made of: SQL alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import duckdb

from rlvr_probe.analysis.causes import Cause
from rlvr_probe.analysis.characterization import Characterization
from rlvr_probe.analysis.ledger import CATEGORIES, Ledger
from rlvr_probe.analysis.ledger.ledger import GPU
from rlvr_probe.analysis.results import Chapter, Evidence, Figure, Series, query
from rlvr_probe.analysis.samples import COUNTS_QUERY
from rlvr_probe.recording.schema import TABLES, VIEWS
from rlvr_probe.recording.tables import Tables

__all__ = ["SLOW", "crowd"]

SLOW: Final = 1_033
"""The GPU that a cause names."""

_STEP: Final = 120_000_000_000
_PARTS: Final = {
    "overhead.data": 0.01, "work.rollout": 0.4, "wait.rollout": 0.2, "wait.reward": 0.05,
    "work.old_logprob": 0.06, "work.update_actor": 0.15, "wait.update": 0.1, "bubble": 0.03,
}  # fmt: skip
"""Shares of a step, which differ a little by GPU and step."""

_SEGMENTS: Final = """
CREATE TABLE segment AS
WITH drawn AS (
    SELECT g, s, 0.01 * (hash(g * 1009 + s) % 1000) / 1000.0 AS noise
    FROM range($gpus) gpus(g), range($steps) steps(s)
), cut AS (
    SELECT g, s, number, name, $step * (s + from_share + CASE WHEN number = 0 THEN 0 ELSE noise END)
               AS start_ns,
           $step * (s + to_share + CASE WHEN number = $last THEN 0 ELSE noise END) AS end_ns
    FROM drawn, part
)
SELECT g::INTEGER AS gpu, s::BIGINT AS step_id, start_ns::BIGINT AS start_ns,
       end_ns::BIGINT AS end_ns, name AS category
FROM cut
"""


@contextmanager
def crowd(gpus: int, steps: int) -> Iterator[tuple[Tables, Characterization]]:
    """Tables with those of the ledger, and what was found in them."""
    with duckdb.connect(":memory:", config={"memory_limit": "1500MB"}) as sql:
        for table in TABLES:
            sql.execute(table.ddl)
        for name, text in VIEWS.items():
            sql.execute(f"CREATE VIEW {name} AS {text}")
        _fill(sql, gpus, steps)
        tables = Tables(sql, "crowd", ())
        yield tables, _found(tables, gpus, steps)


def _fill(sql: duckdb.DuckDBPyConnection, gpus: int, steps: int) -> None:
    over, rows = 0.0, list[tuple[int, str, float, float]]()
    for number, (name, share) in enumerate(_PARTS.items()):
        rows.append((number, name, over, over + share))
        over += share
    sql.execute(
        "CREATE TABLE part (number INTEGER, name VARCHAR, from_share DOUBLE, to_share DOUBLE)"
    )
    sql.executemany("INSERT INTO part VALUES (?, ?, ?, ?)", rows)
    values = {"gpus": gpus, "steps": steps, "step": _STEP, "last": len(rows) - 1}
    sql.execute(_SEGMENTS, values)
    sql.execute(
        "CREATE VIEW ledger AS SELECT step_id, gpu, category, end_ns - start_ns AS ns FROM segment"
    )
    sql.execute(
        "CREATE TABLE gpu AS SELECT g::INTEGER AS gpu, 'rank ' || g AS key, g::INTEGER AS device,"
        " g::INTEGER AS process, g::BIGINT AS rank, 'node' || g // 8 AS host, 'boot' AS boot,"
        " 'both' AS part FROM range(?) gpus(g)",
        [gpus],
    )
    sql.execute(
        "INSERT INTO step BY NAME SELECT s AS step_id, s + 1 AS number, 0 AS attempt,"
        f" s * {_STEP} AS start_ns, (s + 1) * {_STEP} AS end_ns, true AS done FROM range(?) r(s)",
        [steps],
    )
    sql.execute("INSERT INTO run (run, kind, framework) VALUES ('crowd', 'recording', 'verl')")
    sql.execute(
        "INSERT INTO device BY NAME SELECT g AS device, 'GPU-' || g AS uuid, 'gpu' AS kind"
        " FROM range(?) gpus(g)",
        [gpus],
    )
    sql.execute(
        "INSERT INTO reading SELECT g, counter, s * $step, (s + 1) * $step,"
        " hash(g * 7 + s) % 1000 / 1000.0 FROM range(0, $gpus, 8) gpus(g), range($steps) steps(s),"
        " (VALUES ('sm_active'), ('utilization'), ('power_w')) counters(counter)",
        {"gpus": gpus, "steps": steps, "step": _STEP},
    )
    sql.execute(
        "CREATE TABLE barrier_wait AS SELECT step_id, 'update' AS barrier, number AS gpu_ns,"
        f" 'update_actor' AS last_kind, {SLOW} AS process, {SLOW}::BIGINT AS rank,"
        " NULL::BIGINT AS engine, NULL::BIGINT AS trajectory_id, NULL::INTEGER AS turn,"
        " NULL::VARCHAR AS name FROM step"
    )


def _found(tables: Tables, gpus: int, steps: int) -> Characterization:
    ns = dict.fromkeys(CATEGORIES, 0)
    ns.update(
        tables.sql.execute("SELECT category, sum(ns)::BIGINT FROM ledger GROUP BY ALL").fetchall()
    )
    cause = Cause(
        kind="slow_rank", title=f"rank {SLOW} is slow", gpu_s=1e6, share=0.1, low=9e5, high=2e6,
        confidence=0.95, where={"rank": SLOW}, evidence={"step": Evidence.of(range(20), steps)},
        worst=(), usually_helps="Another GPU.", refuted_by="Its clocks.", query="SELECT 1",
    )  # fmt: skip
    units = {"step": "", "count": "1", "min": "s", "mean": "s", "p50": "s", "p99": "s", "max": "s"}
    rows = tuple((s, 9, 0.1, 2.0 + s % 7, 1.0 + s % 5, 9.0 + s % 3, 11.5) for s in range(steps))
    figures = tuple(
        Figure(f"devices.gpu.{name}", name, "Of a GPU.", "1", 0.5, by={"device": f"GPU-{gpu}"})
        for gpu in range(gpus)
        for name in ("sm_active", "utilization", "watts", "memory_max")
    )
    series = tuple(Series(f"devices.a{n}.by_step", "by step", "", units, rows, steps)
                   for n in range(12))  # fmt: skip
    chapter = Chapter("devices", "GPUs", figures, series=series)
    [facts] = query(tables, "SELECT * FROM run").dicts
    return Characterization(
        source="crowd", kind="recording", facts=facts, counts=query(tables, COUNTS_QUERY),
        ledger=Ledger(range(gpus), 0, steps * _STEP, ns, ()),  # type: ignore[arg-type]
        unit=GPU, ledger_by_step=None, waits=None, causes=(cause,), chapters=(chapter,), notes=(),
    )  # fmt: skip
