"""Joins turns and tool calls with the trajectories they belong to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rlvr_probe.model.batch import BatchShard
from rlvr_probe.model.turns import EngineCall, ToolCall, TurnColumns
from rlvr_probe.trace.clock import RunClock
from rlvr_probe.trace.load import Recorded
from rlvr_probe.trace.rows import TurnRow

__all__ = ["join_turns"]


def join_turns(
    recorded: Recorded, clock: RunClock, shards: Mapping[int, BatchShard], skipped: Counter[str]
) -> None:
    """Give the turns and tool calls of one process to its shards.

    Those of a batch that was never finished belong to no trajectory and are only counted.

    Args:
        recorded: The process.
        clock: Clock of the run.
        shards: Its shards by batch.
        skipped: Gets the rows that contradict their batch.
    """
    calls = dict[int, list[EngineCall]]()
    for row in recorded.journal.turns:
        shard = shards.get(row.batch)
        if shard is None:
            continue
        call = _engine_call(row, len(shard.response_tokens), recorded, clock)
        if call is None:
            skipped["unjoined_turns"] += 1
        else:
            calls.setdefault(row.batch, []).append(call)
    for batch, found in calls.items():
        found.sort(key=lambda call: call.start_ns)
        shards[batch].turns = TurnColumns(found)
    tools = dict[int, dict[int, list[ToolCall]]]()
    for one in recorded.journal.tool_calls:
        shard = shards.get(one.batch)
        if shard is None or one.row is None:
            continue
        if one.row >= len(shard.response_tokens):
            skipped["unjoined_turns"] += 1
            continue
        start_ns, end_ns = clock.at(recorded, one.start_ns), clock.at(recorded, one.end_ns)
        tools.setdefault(one.batch, {}).setdefault(one.row, []).append(
            ToolCall(one.turn, one.tool, one.status, one.error, start_ns, end_ns)
        )
    for batch, by_row in tools.items():
        shards[batch].tool_calls = {
            row: tuple(sorted(found, key=lambda call: call.start_ns))
            for row, found in by_row.items()
        }


def _engine_call(row: TurnRow, size: int, recorded: Recorded, clock: RunClock) -> EngineCall | None:
    """The call in a shard of ``size`` rows; None if it cannot be one of it."""
    rows = range(len(row.turns)) if row.rows is None else row.rows
    if rows[-1] >= size or (row.rows is None and len(rows) != size):
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
