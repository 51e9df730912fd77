"""Gives a trace what the tables say of single trajectories: exporters ask the trace alone."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, groupby
from math import nan
from operator import itemgetter
from typing import Any, Final

import msgspec

from rlvr_probe.model.batch import BatchShard, RewardColumn
from rlvr_probe.model.columns import MeasureColumn, PairColumn, RaggedColumn, SparseColumn
from rlvr_probe.model.requests import Request, RequestColumns
from rlvr_probe.model.trace import Attempt
from rlvr_probe.model.turns import (
    LooseCall,
    LooseCallColumns,
    ToolCall,
    ToolColumns,
    TurnColumns,
)
from rlvr_probe.model.verifications import RewardCallColumns
from rlvr_probe.recording.fine import columns
from rlvr_probe.recording.fine.join import Part
from rlvr_probe.recording.fine.statements import statements
from rlvr_probe.recording.fine.store import FineStore

__all__ = ["restore"]

_TURN: Final = (
    "rows", "turns", "start_ns", "end_ns", "prompt_tokens", "response_tokens", "cached_tokens",
    "request",
)  # fmt: skip


def restore(store: FineStore, attempts: Sequence[Attempt], parts: Sequence[Part]) -> None:
    """Give the shards of ``parts``, and ``attempts``, what was joined.

    Args:
        store: As :func:`~rlvr_probe.recording.fine.join.join` left it.
        attempts: Of the run.
        parts: Their places are their numbers.
    """
    rows = store.rows
    for n, text in _ask(store, "trajectories"):
        _give_trajectories(parts[n].shard, parts[n].row.spans is not None, text)
    for n, text in _ask(store, "masks"):
        masks = msgspec.json.decode(text)
        parts[n].shard.loss_runs = RaggedColumn.of(
            array("I", chain.from_iterable(masks)), array("Q", accumulate(map(len, masks)))
        )
    requests = _give_requests(store, attempts) if store.has_requests else ()
    if rows[columns.TURN.name]:
        for n, text in _ask(store, "turns_of_requests" if requests else "turns"):
            values = dict(zip(_TURN, _columns(text, len(_TURN)), strict=True))
            parts[n].shard.turns = TurnColumns(requests, **values)
        for index, calls in groupby(_ask(store, "calls"), itemgetter(0)):
            loose = attempts[index].loose_calls = LooseCallColumns(attempts[index].loose_calls)
            for _, *call in calls:
                loose.append(LooseCall(*call))
    if rows[columns.TOOL.name]:
        for n, calls in groupby(_ask(store, "tools"), itemgetter(0)):
            tools = parts[n].shard.tool_calls = ToolColumns()
            for _, row, *call in calls:
                tools.add(row, ToolCall(*call))
    if rows[columns.VERIFICATION.name]:
        for n, functions in groupby(_ask(store, "verifications"), itemgetter(0)):
            _give_verifications(parts[n].shard, {name: text for _, name, text in functions})
        _give_rewards(store, parts)


def _ask(store: FineStore, name: str) -> list[tuple[Any, ...]]:
    sql, _ = store.open()
    return sql.execute(statements("rlvr_probe.recording.fine", "restore.sql")[name]).fetchall()


def _columns(text: str, count: int) -> list[array[int]]:
    """Columns of rows that stand one after the other."""
    values = array("q", msgspec.json.decode(text))
    return [values[place::count] for place in range(count)]


def _measures(column: list[Any], odd: Sequence[int] = ()) -> MeasureColumn:
    return MeasureColumn(array("d", [nan if value is None else value for value in column]), odd)


def _give_trajectories(shard: BatchShard, is_told_by_span: bool, text: str) -> None:
    _, starts, ends, engines, oldest, newest, truncated = _columns(text, 7)
    shard.times_ns = PairColumn(starts, ends)
    if is_told_by_span:
        return
    if max(newest) >= 0:
        shard.policy_versions = PairColumn(oldest, newest)
    if shard.engines is None and max(engines) >= 0:
        shard.engines = SparseColumn.of(engines)
    if shard.truncated is None and min(truncated) >= 0:
        shard.truncated = bytes(truncated.tolist())


def _give_verifications(shard: BatchShard, rows_of: Mapping[str, str]) -> None:
    """Calls of reward functions, by name: their rows."""
    functions, columns = list[str](), [array("q") for _ in range(6)]
    for function, text in rows_of.items():
        for column, values in zip(columns, _columns(text, 6), strict=True):
            column += values
        functions += [function] * (len(columns[0]) - len(functions))
    if len(rows_of) > 1:
        rows = sorted(zip(*columns[:3], range(len(functions)), strict=True))
        order = [place for *_, place in rows]
        functions = [functions[place] for place in order]
        columns = [array("q", map(column.__getitem__, order)) for column in columns]
    starts, process, own, ends, attempts, timeouts = columns
    calls = RewardCallColumns.of(
        functions, process=process, start_ns=starts, end_ns=ends, rows=own, attempts=attempts,
        timeouts=timeouts, samples=array("q", [1]) * len(functions),
    )  # fmt: skip
    for call in shard.calls:
        calls.append(call)
    shard.calls = calls.by_start()


def _give_rewards(store: FineStore, parts: Sequence[Part]) -> None:
    """Rewards where the trainer told none; else the times of their verification."""
    given = dict[int, list[RewardColumn]]()
    for n, index, function, *texts in _ask(store, "rewards"):
        values, odd, times = (msgspec.json.decode(text or "[]") for text in texts)
        column = RewardColumn(function, index, _measures(values, odd), _measures(times))
        given.setdefault(n, []).append(column)
    for n, found in given.items():
        shard = parts[n].shard
        if not shard.rewards:
            shard.rewards = found
        elif len(found) == 1:
            [told] = shard.rewards
            shard.rewards = [replace(told, verify_s=found[0].verify_s)]


def _give_requests(store: FineStore, attempts: Sequence[Attempt]) -> Sequence[Request]:
    """The requests of all attempts; each is given its own."""
    every = RequestColumns()
    own = {attempt.index: RequestColumns() for attempt in attempts}
    for index, joined, *values in _ask(store, "requests"):
        request = Request(*values)
        every.append(request)
        own[index].append(request)
        attempts[index].unjoined_requests += not joined
    for attempt in attempts:
        attempt.requests = own[attempt.index]
    return every
