"""Fills what reward functions gave: what a trainer told, and what single verifications did.

As :func:`rlvr_probe.recording.turns.join_verifications`: where the trainer told nothing, every
function
that verified any trajectory of a shard has a value, or none, for each of them; given twice,
nobody knows which value counted. A value that was given to other trajectories as well has its time
with the one that was verified. Where the trainer told the values of one function, and one function
verified, these are its times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import duckdb

from rlvr_probe.recording.bulk import Bulk, real
from rlvr_probe.recording.columns import Column, Table
from rlvr_probe.recording.tables.journals.matching import Places

__all__ = ["place_rewards"]

_TOLD = Table(
    "q_told",
    "",
    (
        Column("n", "INTEGER", ""),
        Column("function", "VARCHAR", ""),
        Column("fn", "BIGINT", ""),
        Column("given", "DOUBLE[]", ""),
        Column("times", "DOUBLE[]", ""),
    ),
)


def place_rewards(bulk: Bulk, sql: duckdb.DuckDBPyConnection, places: Places) -> None:
    """Fill ``verification`` and ``reward``."""
    sql.execute(_TOLD.ddl)
    bulk.add(_TOLD, _told(places))
    bulk.finish()
    for name, kind in _MEANWHILE:
        sql.execute(f"ALTER TABLE verification ADD COLUMN {name} {kind}")
    sql.execute(_VERIFIED)
    [[shared]] = sql.execute(_SHARED).fetchall()
    sql.execute(_FUNCTIONS)
    sql.execute(_TOLD_ROWS)
    sql.execute(_EACH_ONCE)
    [[odd]] = sql.execute("SELECT count(*) FROM q_function WHERE told = 0 AND NOT once").fetchall()
    if odd:
        sql.execute(_NOT_ONCE)
    if shared:
        sql.execute("DELETE FROM verification WHERE start_ns IS NULL")
    for name, _ in _MEANWHILE:
        sql.execute(f"ALTER TABLE verification DROP COLUMN {name}")


def _told(places: Places) -> Iterator[Sequence[Any]]:
    for number, part in enumerate(places.parts):
        for column in part.shard.rewards:
            times = None if column.verify_s is None else list(column.verify_s)
            yield number, column.function, column.index, list(map(real, column.values)), times


_MEANWHILE = (("n", "INTEGER"), ("value", "DOUBLE"))
"""Columns that verifications have until rewards are made of them: their shard, what was given."""

_VERIFIED = (
    "INSERT INTO verification BY NAME SELECT i.n AS n, i.first + j.local AS trajectory_id,"
    " r.process AS process, t.function AS function, t.start_ns + shift_ns AS start_ns,"
    " t.end_ns + shift_ns AS end_ns, t.attempts AS attempts, t.timeouts AS timeouts,"
    " t.value AS value FROM q_verification t JOIN q_place j ON t.p = j.p AND t.batch = j.own"
    " JOIN q_shard i USING (n) JOIN q_member m ON m.p = t.p JOIN q_process r ON r.p = t.p"
)
_SHARED = (
    "INSERT INTO verification BY NAME SELECT i.n AS n, i.first + j.local AS trajectory_id,"
    " t.function AS function, t.value AS value FROM"
    " (SELECT p, function, value, unnest(shared) AS span FROM q_verification"
    " WHERE shared IS NOT NULL) t"
    " JOIN q_place j ON t.p = j.p AND t.span = j.own JOIN q_shard i USING (n)"
)
"""What was given to other trajectories too, until rewards are made of it: it has no times."""

_TOOK = "(end_ns - start_ns) / 1e9"

_FUNCTIONS = (
    "CREATE TABLE q_function AS SELECT v.n AS n, v.function AS function, i.told AS told,"
    " row_number() OVER (PARTITION BY v.n ORDER BY v.function) - 1 AS fn,"
    " v.verified = i.size AND v.those = e.every AS once,"
    " count(*) OVER (PARTITION BY v.n) AS functions FROM"
    " (SELECT n, function, count(*) AS verified, sum(hash(trajectory_id)) AS those"
    " FROM verification GROUP BY n, function) v JOIN q_shard i USING (n) JOIN"
    " (SELECT n, sum(hash(first + local)) AS every FROM q_joined JOIN q_shard USING (n)"
    " GROUP BY n) e USING (n)"
)
"""Functions that verified single trajectories of a shard; ``once``: each of them exactly once."""

_TOLD_ROWS = (
    "INSERT INTO reward SELECT first + local, function, fn, value, verify_s FROM"
    " (SELECT n, unnest(range(len(given))) AS local, function, fn, unnest(given) AS value,"
    " unnest(times) AS verify_s FROM q_told WHERE n NOT IN"
    " (SELECT n FROM q_function JOIN q_told t USING (n) WHERE told = 1 AND functions = 1"
    " AND t.times IS NULL)) JOIN q_shard USING (n)"
    " UNION ALL SELECT first + local, a.function, a.fn, a.value, b.took_s FROM"
    " (SELECT n, unnest(range(len(given))) AS local, q_told.function AS function, q_told.fn AS fn,"
    " unnest(given) AS value FROM q_told JOIN q_function USING (n) WHERE told = 1 AND functions = 1"
    " AND times IS NULL) a JOIN q_shard USING (n) LEFT JOIN"
    f" (SELECT trajectory_id, CASE WHEN count(*) = 1 THEN any_value({_TOOK}) END AS took_s"
    " FROM verification WHERE n IN (SELECT n FROM q_function WHERE told = 1 AND functions = 1)"
    " GROUP BY trajectory_id) b ON b.trajectory_id = first + local"
)

_EACH_ONCE = (
    "INSERT INTO reward SELECT trajectory_id, function, fn, v.value,"
    " (v.end_ns - v.start_ns) / 1e9 FROM verification v"
    " JOIN q_function USING (n, function) WHERE told = 0 AND once"
)

_NOT_ONCE = (
    "INSERT INTO reward SELECT i.first + j.local, f.function, f.fn, v.value, v.took_s"
    " FROM q_function f JOIN q_joined j USING (n) JOIN q_shard i USING (n) LEFT JOIN"
    " (SELECT trajectory_id, function, CASE WHEN count(*) = 1 THEN any_value(value) END AS value,"
    f" CASE WHEN count(*) = 1 THEN any_value({_TOOK}) END AS took_s FROM verification"
    " GROUP BY trajectory_id, function) v"
    " ON v.trajectory_id = i.first + j.local AND v.function = f.function"
    " WHERE f.told = 0 AND NOT f.once"
)
