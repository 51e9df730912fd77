"""Gives a trace what the tables say of single trajectories: exporters ask the trace alone."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlvr_probe.model.batch import BatchShard, RewardColumn
from rlvr_probe.model.columns import MeasureColumn, PairColumn, RaggedColumn, SparseColumn
from rlvr_probe.model.requests import Request, RequestColumns
from rlvr_probe.model.trace import Attempt
from rlvr_probe.model.turns import (
    LooseCall,
    LooseCallColumns,
    RewardCallColumns,
    ToolCall,
    ToolColumns,
    TurnColumns,
)
from rlvr_probe.recording.fine import columns
from rlvr_probe.recording.fine.join import Part
from rlvr_probe.recording.fine.statements import statements
from rlvr_probe.recording.fine.store import FineStore

if TYPE_CHECKING:
    import duckdb

__all__ = ["restore"]

_Column = Any
"""An array of numpy, masked where values are unknown."""


def restore(store: FineStore, attempts: Sequence[Attempt], parts: Sequence[Part]) -> None:
    """Give the shards of ``parts``, and ``attempts``, what was joined.

    Args:
        store: As :func:`~rlvr_probe.recording.fine.join.join` left it.
        attempts: Of the run.
        parts: Their places are their numbers.
    """
    sql, _ = store.open()
    rows = store.rows
    for n, found in _by_number(sql, "trajectories"):
        _give_trajectories(parts[n].shard, parts[n].row.spans is not None, found)
    for n, found in _by_number(sql, "masks"):
        lists = found["runs"].tolist()
        ends, values = np.cumsum(list(map(len, lists))), np.concatenate(lists)
        parts[n].shard.loss_runs = RaggedColumn.of(
            array("I", values.astype(np.uint32).tobytes()),
            array("Q", ends.astype(np.uint64).tobytes()),
        )
    requests = _give_requests(sql, attempts) if store.has_requests else ()
    turns = "turns_of_requests" if requests else "turns"
    for n, found in _by_number(sql, turns) if rows[columns.TURN.name] else ():
        parts[n].shard.turns = TurnColumns(requests, **_packed(found))
    for n, found in _by_number(sql, "tools") if rows[columns.TOOL.name] else ():
        tools = ToolColumns()
        for values in _rows(found):
            tools.add(values[0], ToolCall(*values[1:]))
        parts[n].shard.tool_calls = tools
    verified = rows[columns.VERIFICATION.name]
    for n, found in _by_number(sql, "verifications") if verified else ():
        functions = found.pop("function").tolist()
        calls = RewardCallColumns.of(functions, **_packed(found))
        for told in parts[n].shard.calls:
            calls.append(told)
        parts[n].shard.calls = calls.by_start()
    for n, found in _by_number(sql, "rewards") if verified else ():
        _give_rewards(parts[n].shard, found)
    for index, found in _by_number(sql, "calls") if rows[columns.TURN.name] else ():
        loose = attempts[index].loose_calls = LooseCallColumns(attempts[index].loose_calls)
        for values in _rows(found):
            loose.append(LooseCall(*values))


def _by_number(
    sql: duckdb.DuckDBPyConnection, name: str
) -> Iterator[tuple[int, dict[str, _Column]]]:
    """The columns that a statement gives, for each number in the first, which is ordered."""
    query = statements("rlvr_probe.recording.fine", "restore.sql")[name]
    numbers, *columns = (found := sql.execute(query).fetchnumpy()).values()
    names = list(found)[1:]
    every, begins = np.unique(numbers, return_index=True)
    ends = [*begins.tolist(), len(numbers)][1:]
    for number, begin, end in zip(every.tolist(), begins.tolist(), ends, strict=True):
        slices = (column[begin:end] for column in columns)
        yield number, dict(zip(names, slices, strict=True))


def _numbers(column: _Column, unknown: int = -1) -> array[int]:
    packed = array("q")
    packed.frombytes(np.ma.filled(column.astype(np.int64), unknown).tobytes())
    return packed


def _packed(columns: Mapping[str, _Column]) -> dict[str, array[int]]:
    return {name: _numbers(column) for name, column in columns.items()}


def _pairs(first: _Column, second: _Column) -> PairColumn:
    return PairColumn(_numbers(first, 0), _numbers(second, -1))


def _measures(column: _Column) -> MeasureColumn:
    values, unknown = np.ma.getdata(column), np.ma.getmaskarray(column)
    packed = array("d")
    packed.frombytes(np.where(unknown, np.nan, values).astype(np.float64).tobytes())
    return MeasureColumn(packed, np.flatnonzero(~unknown & np.isnan(values)).tolist())


def _rows(columns: Mapping[str, _Column]) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns.values()), strict=True)


def _give_trajectories(
    shard: BatchShard, is_told_by_span: bool, found: Mapping[str, _Column]
) -> None:
    shard.times_ns = _pairs(found["start_ns"], found["end_ns"])
    if is_told_by_span:
        return
    if np.ma.count(found["newest"]):
        shard.policy_versions = _pairs(found["oldest"], found["newest"])
    if shard.engines is None and np.ma.count(found["engine"]):
        shard.engines = SparseColumn.of(_numbers(found["engine"]))
    if shard.truncated is None and not np.ma.is_masked(found["truncated"]):
        shard.truncated = bytes(found["truncated"].tolist())


def _give_rewards(shard: BatchShard, found: Mapping[str, _Column]) -> None:
    """Rewards where the trainer told none; else the times of their verification."""
    size = len(shard.response_tokens)
    columns = list[RewardColumn]()
    for begin in range(0, len(found["fn"]), size):
        mine = {name: column[begin : begin + size] for name, column in found.items()}
        index, function = int(mine["fn"][0]), str(mine["function"][0])
        values, times = _measures(mine["value"]), _measures(mine["verify_s"])
        columns.append(RewardColumn(function, index, values, times))
    if not shard.rewards:
        shard.rewards = columns
    elif len(columns) == 1:
        [told] = shard.rewards
        shard.rewards = [replace(told, verify_s=columns[0].verify_s)]


def _give_requests(
    sql: duckdb.DuckDBPyConnection, attempts: Sequence[Attempt]
) -> Sequence[Request]:
    """The requests of all attempts; each is given its own."""
    every = RequestColumns()
    own = {attempt.index: RequestColumns() for attempt in attempts}
    query = statements("rlvr_probe.recording.fine", "restore.sql")["requests"]
    for index, joined, *values in sql.execute(query).fetchall():
        request = Request(*values)
        every.append(request)
        own[index].append(request)
        attempts[index].unjoined_requests += not joined
    for attempt in attempts:
        attempt.requests = own[attempt.index]
    return every
