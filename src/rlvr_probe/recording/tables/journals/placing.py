"""Fills the tables of what was generated from rows that were joined in SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb

from rlvr_probe.model.batch import Batch, BatchShard
from rlvr_probe.model.trace import Step, Trace
from rlvr_probe.recording.bulk import Bulk
from rlvr_probe.recording.columns import Column, Table
from rlvr_probe.recording.tables.generated_rows import (
    batch_row,
    call_rows,
    fill_engines,
    turn_row,
)
from rlvr_probe.recording.tables.journals.matching import Places
from rlvr_probe.recording.tables.journals.rewarding import place_rewards
from rlvr_probe.recording.tables.schema import BY_NAME

__all__ = ["place"]

_SHARD = Table(
    "q_shard",
    "",
    tuple(
        Column(name, kind, "")
        for name, kind in (
            ("n", "INTEGER"), ("first", "INTEGER"), ("batch_id", "INTEGER"), ("step_id", "INTEGER"),
            ("mode", "VARCHAR"), ("process", "INTEGER"), ("base", "BIGINT"), ("size", "INTEGER"),
            ("group_size", "BIGINT"), ("policy_version", "BIGINT"), ("start_ns", "BIGINT"),
            ("end_ns", "BIGINT"), ("grouped", "BOOLEAN"), ("engines", "BOOLEAN"),
            ("masked", "BOOLEAN"), ("cuts", "BOOLEAN"), ("spans", "BOOLEAN"), ("told", "INTEGER"),
        )
    ),
)  # fmt: skip
_CHOSEN = Table(
    "q_chosen",
    "",
    (
        Column("batch_id", "INTEGER", ""),
        Column("grp", "BIGINT", ""),
        Column("kept", "BOOLEAN", ""),
        Column("used", "BOOLEAN", ""),
    ),
)


def place(bulk: Bulk, places: Places, trace: Trace, steps: Sequence[Step]) -> Counter[int]:
    """Fill them; how many turns and tool calls contradict their batch, by attempt.

    Args:
        bulk: Of the tables.
        places: Of all trajectories.
        trace: Everything else, with the shards that ``places`` knows.
        steps: At the place that is their number.
    """
    sql = places.sql
    sql.execute("DROP TABLE IF EXISTS q_row")
    sql.execute("DROP TABLE q_trajectory")
    for table in (_SHARD, _CHOSEN):
        sql.execute(table.ddl)
    _add_batches(bulk, places, trace, steps)
    bulk.finish()
    _add_processes(sql, places, trace)
    sql.execute(_FLAGS)
    sql.execute(_TRAJECTORIES)
    if any(batch.ragged for _, batch in _batches(trace, steps)):
        sql.execute(_SAMPLES)
    sql.execute(_GROUPS)
    sql.execute(_TRAINED)
    sql.execute("CREATE TABLE q_place AS " + _PLACES)
    wrong = _place(sql, "q_turn", _TURNS, _LOOSE_TURNS) + _place(
        sql, "q_tool", _TOOLS, _LOOSE_TOOLS
    )
    place_rewards(bulk, sql, places)
    bulk.finish()
    return wrong


def _add_batches(bulk: Bulk, places: Places, trace: Trace, steps: Sequence[Step]) -> None:
    number_of = {id(part.shard): number for number, part in enumerate(places.parts)}
    first = 0
    for batch_id, (step_id, batch) in enumerate(_batches(trace, steps)):
        bulk.add(BY_NAME["batch"], [batch_row(batch_id, step_id, batch)])
        bulk.add(_CHOSEN, _chosen(batch_id, batch))
        for shard in batch.shards:
            n = number_of[id(shard)]
            bulk.add(_SHARD, [_shard(places, n, first, batch_id, step_id, batch, shard)])
            for row in shard.turns:
                took: Mapping[int, float | None] = {}
                bulk.add(
                    BY_NAME["turn"],
                    (turn_row(first + row, turn, took) for turn in shard.turns[row]),
                )
            bulk.add(BY_NAME["reward_call"], call_rows(shard, batch_id))
            first += len(shard.response_tokens)
    fill_engines(bulk, trace)


def _batches(trace: Trace, steps: Sequence[Step]) -> Iterator[tuple[int | None, Batch]]:
    for at, step in enumerate(steps):
        for batch in (*step.batches, *step.evaluations):
            yield at, batch
    for attempt in trace.attempts:
        for batch in attempt.untrained:
            yield None, batch


def _chosen(batch_id: int, batch: Batch) -> Iterator[Sequence[Any]]:
    """Groups that are known to have been kept or used, or not to have been."""
    if batch.kept is None and batch.used is None:
        return
    kept, used = batch.kept, batch.used
    yield batch_id, None, None if kept is None else False, None if used is None else False
    for group in (kept or frozenset()) | (used or frozenset()):
        yield (
            batch_id, group, None if kept is None else group in kept,
            None if used is None else group in used,
        )  # fmt: skip


def _shard(
    places: Places,
    n: int,
    first: int,
    batch_id: int,
    step_id: int | None,
    batch: Batch,
    shard: BatchShard,
) -> Sequence[Any]:
    row = places.parts[n].row
    return (
        n, first, batch_id, step_id, batch.mode, shard.process, shard.offset,
        len(shard.response_tokens), batch.group_size, batch.policy_version, shard.start_ns,
        shard.end_ns, row.groups is not None, row.engines is not None, row.loss_runs is not None,
        row.truncated is not None, row.spans is not None, len(shard.rewards),
    )  # fmt: skip


def _add_processes(sql: duckdb.DuckDBPyConnection, places: Places, trace: Trace) -> None:
    """Process and attempt in the run, by the number of a process."""
    index_of = {one.key: one.index for one in trace.processes}
    attempt_of = {index: one.index for one in trace.attempts for index in one.processes}
    known = [
        (one.number, index_of[key], attempt_of.get(index_of[key]))
        for key, one in places.left.items()
        if key in index_of
    ]
    sql.execute("CREATE TABLE q_process (p INTEGER, process INTEGER, attempt INTEGER)")
    sql.execute(
        "INSERT INTO q_process SELECT unnest(?::INTEGER[]), unnest(?::INTEGER[]),"
        " unnest(?::INTEGER[])",
        [list(column) for column in zip(*known, strict=True)] if known else [[], [], []],
    )


def _place(
    sql: duckdb.DuckDBPyConnection, table: str, usual: str, others: Sequence[str]
) -> Counter[int]:
    """Place turns or tool calls; how many of them contradict their batch, by attempt."""
    [[placed]] = sql.execute(usual).fetchall()
    [[every]] = sql.execute(f"SELECT count(*) FROM {table}").fetchall()
    if placed == every:
        return Counter()
    sql.execute(_ONLY)
    sql.execute(_LOOSE.format(table=table))
    for statement in others:
        sql.execute(statement)
    wrong = sql.execute(
        "SELECT attempt, count(*) FROM q_loose JOIN q_process USING (p) WHERE attempt IS NOT NULL"
        " AND (split OR (n IS NOT NULL AND local NOT BETWEEN 0 AND size - 1)) GROUP BY attempt"
    )
    return Counter(dict(wrong.fetchall()))


_FLAGS = (
    "CREATE TABLE q_flag AS SELECT n, count(high) > 0 AS keyed, bool_and(ok) AND"
    " count(*) = count(stopped) AS cut_known, bool_and(ok) AND count(*) = count(kept) AS mask_known"
    " FROM q_joined GROUP BY n"
)
"""What must be known of every row of a shard to be said of any."""

_TRAJECTORIES = (
    "INSERT INTO trajectory SELECT i.first + local, batch_id, step_id, mode, process, base + local,"
    " CASE WHEN grouped THEN grp ELSE (base + local) // group_size END,"
    " CASE WHEN grouped THEN NULL ELSE (base + local) % group_size END, prompt, response,"
    " CASE WHEN masked THEN loss WHEN mask_known AND keyed THEN kept END, NULL,"
    " CASE WHEN cuts THEN cut <> 0 WHEN cut_known AND keyed THEN stopped END,"
    " CASE WHEN engines THEN engine WHEN ok AND keyed THEN served END, policy_version,"
    " CASE WHEN ok AND keyed THEN oldest END, CASE WHEN ok AND keyed THEN newest END,"
    " CASE WHEN NOT (keyed OR spans) THEN i.start_ns WHEN ok THEN j.start_ns END,"
    " CASE WHEN NOT (keyed OR spans) THEN i.end_ns WHEN ok THEN j.end_ns END,"
    " CASE WHEN NOT (keyed OR spans) THEN CASE WHEN i.start_ns IS NOT NULL THEN false END"
    " WHEN ok AND j.start_ns IS NOT NULL THEN true END"
    " FROM q_joined j JOIN q_shard i USING (n) JOIN q_flag USING (n)"
)

_SAMPLES = (
    "UPDATE trajectory SET sample = s.place FROM (SELECT trajectory_id,"
    " row_number() OVER (PARTITION BY batch_id, grp ORDER BY trajectory_id) - 1 AS place"
    " FROM trajectory) s WHERE s.trajectory_id = trajectory.trajectory_id AND sample IS NULL"
)
"""Where groups are told row by row, a sample's place is among those of its group."""

_GROUPS = (
    "INSERT INTO prompt_group SELECT g.batch_id, g.grp, CASE WHEN NOT ragged THEN group_size WHEN"
    " total = rows THEN held ELSE greatest(group_size, held + 1) END, held,"
    " coalesce(c.kept, o.kept), coalesce(c.used, o.used) FROM"
    " (SELECT batch_id, grp, count(*) AS held FROM trajectory GROUP BY batch_id, grp) g"
    " JOIN batch USING (batch_id) LEFT JOIN q_chosen c ON c.batch_id = g.batch_id AND c.grp = g.grp"
    " LEFT JOIN q_chosen o ON o.batch_id = g.batch_id AND o.grp IS NULL"
)
_TRAINED = (
    "INSERT INTO trained SELECT step_id, batch_id, grp FROM prompt_group"
    " JOIN batch USING (batch_id) WHERE step_id IS NOT NULL AND (used OR (queued AND used IS NULL))"
)

_PLACES = "SELECT p, own, n, local FROM q_joined WHERE ok"

_TURNS = (
    "INSERT INTO turn SELECT i.first + j.local, t.turn, t.prompt, t.response, t.cached,"
    " t.start_ns + shift_ns, t.end_ns + shift_ns, (t.end_ns - t.start_ns) / 1e9, NULL, NULL, NULL,"
    " NULL, NULL FROM q_turn t JOIN q_place j ON t.p = j.p AND t.batch = j.own"
    " JOIN q_shard i USING (n) JOIN q_member m ON m.p = t.p"
)
_TOOLS = (
    "INSERT INTO tool_call SELECT i.first + j.local, t.turn, t.tool, t.status, t.error,"
    " t.start_ns + shift_ns, t.end_ns + shift_ns, (t.end_ns - t.start_ns) / 1e9, NULL, NULL"
    " FROM q_tool t JOIN q_place j ON t.p = j.p AND t.batch = j.own JOIN q_shard i USING (n)"
    " JOIN q_member m ON m.p = t.p"
)
_ONLY = (
    "CREATE OR REPLACE TEMP TABLE q_only AS SELECT p, batch, min(n) AS n, any_value(size) AS size,"
    " count(*) > 1 AS split FROM q_part WHERE batch <> 0 GROUP BY p, batch"
)
"""Batches of one process: their shard, where there is one."""
_LOOSE = (
    "CREATE OR REPLACE TEMP TABLE q_loose AS SELECT t.*, CASE WHEN NOT o.split THEN o.n END AS n,"
    " o.size AS size, coalesce(o.split, false) AS split, t.row AS local FROM {table} t"
    " LEFT JOIN q_only o ON o.p = t.p AND o.batch = t.batch"
    " WHERE NOT EXISTS (SELECT 1 FROM q_place j WHERE j.p = t.p AND j.own = t.batch)"
)
"""What belongs to no trajectory that has a span of its own; ``row`` may be one of its batch."""

_INSIDE = (
    "FROM q_loose l JOIN q_member USING (p) JOIN q_shard i USING (n)"
    " WHERE l.local BETWEEN 0 AND l.size - 1"
)
_LOOSE_TURNS = (
    "UPDATE q_loose SET local = CASE WHEN size = 1 THEN 0 ELSE -1 END WHERE local IS NULL",
    "INSERT INTO turn SELECT i.first + l.local, l.turn, l.prompt, l.response, l.cached,"
    " l.start_ns + shift_ns, l.end_ns + shift_ns, (l.end_ns - l.start_ns) / 1e9, NULL, NULL, NULL,"
    f" NULL, NULL {_INSIDE}",
    "INSERT INTO engine_call SELECT attempt, process, l.start_ns + shift_ns, l.end_ns + shift_ns,"
    " 1, l.response FROM q_loose l JOIN q_member USING (p) JOIN q_process USING (p)"
    " WHERE l.n IS NULL",
)
_LOOSE_TOOLS = (
    "INSERT INTO tool_call SELECT i.first + l.local, l.turn, l.tool, l.status, l.error,"
    " l.start_ns + shift_ns, l.end_ns + shift_ns, (l.end_ns - l.start_ns) / 1e9, NULL, NULL"
    f" {_INSIDE}",
)
