"""Joins turns and tool calls with the trajectories they belong to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set

from rlvr_probe.model.batch import BatchShard
from rlvr_probe.model.turns import EngineCall, ToolCall, TurnColumns
from rlvr_probe.trace.clock import RunClock
from rlvr_probe.trace.load import Recorded
from rlvr_probe.trace.rows import TurnRow

__all__ = ["join_turns"]


def join_turns(
    recorded: Recorded,
    clock: RunClock,
    shards: Mapping[int, BatchShard],
    places: Mapping[int, tuple[BatchShard, int]],
    split: Set[int],
    skipped: Counter[str],
) -> None:
    """Give the turns and tool calls of one process to its shards.

    Those of a batch that was never finished belong to no trajectory and are only counted.

    Args:
        recorded: The process.
        clock: Clock of the run.
        shards: Its shards by batch.
        places: Shard and row of each trajectory that has a span of its own.
        split: Batches of which this process has several shards: rows of theirs cannot be placed.
        skipped: Gets the rows that contradict their batch, or cannot be placed in it.
    """
    turns = dict[int, tuple[BatchShard, list[EngineCall]]]()
    for row in recorded.journal.turns:
        shard, only = places.get(row.batch) or (shards.get(row.batch), None)
        if shard is None:
            skipped["unjoined_turns"] += row.batch in split
            continue
        call = _engine_call(row, only, len(shard.response_tokens), recorded, clock)
        if call is None:
            skipped["unjoined_turns"] += 1
        else:
            turns.setdefault(id(shard), (shard, []))[1].append(call)
    for shard, found in turns.values():
        found.sort(key=lambda call: call.start_ns)
        shard.turns = TurnColumns(found)
    tools = dict[int, tuple[BatchShard, dict[int, list[ToolCall]]]]()
    for one in recorded.journal.tool_calls:
        shard, only = places.get(one.batch) or (shards.get(one.batch), None)
        local = one.row if only is None else only
        if shard is None or local is None:
            skipped["unjoined_turns"] += one.batch in split
            continue
        if local >= len(shard.response_tokens):
            skipped["unjoined_turns"] += 1
            continue
        start_ns, end_ns = clock.at(recorded, one.start_ns), clock.at(recorded, one.end_ns)
        tools.setdefault(id(shard), (shard, {}))[1].setdefault(local, []).append(
            ToolCall(one.turn, one.tool, one.status, one.error, start_ns, end_ns)
        )
    for shard, by_row in tools.values():
        shard.tool_calls = {
            row: tuple(sorted(calls, key=lambda call: call.start_ns))
            for row, calls in by_row.items()
        }


def _engine_call(
    row: TurnRow, only: int | None, size: int, recorded: Recorded, clock: RunClock
) -> EngineCall | None:
    """The call in a shard of ``size`` rows, or of its row ``only``; None if it cannot be one."""
    rows: Sequence[int] = range(len(row.turns)) if row.rows is None else row.rows
    if only is not None:
        if len(rows) != 1:
            return None
        rows = (only,)
    elif rows[-1] >= size or (row.rows is None and len(rows) != size):
        return None
    return EngineCall(
        rows=rows,
        turns=row.turns,
        prompt_tokens=row.prompt_tokens,
        response_tokens=row.response_tokens,
        cached_tokens=row.cached_tokens,
        start_ns=clock.at(recorded, row.start_ns),
        end_ns=clock.at(recorded, row.end_ns),
    )
