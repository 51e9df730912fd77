"""Gives a trace what the tables say of single trajectories: exporters ask the trace alone."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, compress, count, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from rlvr_probe.model.batch import BatchShard, RewardColumn
from rlvr_probe.model.columns import MeasureColumn, PairColumn, RaggedColumn, SparseColumn
from rlvr_probe.model.requests import Request, RequestColumns
from rlvr_probe.model.reward_calls import RewardCallColumns
from rlvr_probe.model.trace import Attempt
from rlvr_probe.model.turns import LooseCall, LooseCallColumns, ToolCall, ToolColumns, TurnColumns
from rlvr_probe.recording.arrow import columns_by_first
from rlvr_probe.recording.fine.join import Part
from rlvr_probe.recording.schema import statements
from rlvr_probe.recording.store import FineStore

if TYPE_CHECKING:
    import duckdb

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
    sql, _ = store.open()
    restoring = _Restoring(sql, attempts, parts)
    restoring.trajectories()
    restoring.masks()
    if store.has_requests:
        restoring.requests()
    if store.rows["q_turn"]:
        restoring.turns("turns_of_requests" if store.has_requests else "turns")
        restoring.calls()
    if store.rows["q_tool"]:
        restoring.tools()
    if store.rows["q_verification"]:
        restoring.verifications()
        restoring.rewards()


class _Restoring:
    """Gives what each query of ``restore.sql`` answers to the trace."""

    def __init__(
        self,
        sql: duckdb.DuckDBPyConnection,
        attempts: Sequence[Attempt],
        parts: Sequence[Part],
    ) -> None:
        self._sql, self._attempts, self._parts = sql, attempts, parts
        self._texts = statements("rlvr_probe.recording.fine", "restore.sql")
        self._requests: Sequence[Request] = ()

    def _rows(self, name: str) -> list[Any]:
        return self._sql.execute(self._texts[name]).fetchall()

    def _columns(self, name: str) -> Iterator[tuple[int, list[array[Any]]]]:
        return columns_by_first(self._sql, self._texts[name])

    def trajectories(self) -> None:
        for n, columns in self._columns("trajectories"):
            part = self._parts[n]
            _give_trajectories(part.shard, part.row.spans is not None, *columns)

    def masks(self) -> None:
        self._sql.execute(self._texts["masked"])
        tokens = {n: column for n, [column] in self._columns("masks")}
        for n, [sizes] in self._columns("mask_sizes"):
            ends = array("Q", accumulate(sizes))
            runs = RaggedColumn.of(tokens.get(n, array("I")), ends)
            self._parts[n].shard.loss_runs = runs

    def requests(self) -> None:
        """Give the requests of all attempts; each is given its own."""
        every = RequestColumns()
        own = {attempt.index: RequestColumns() for attempt in self._attempts}
        for index, *values in self._rows("requests"):
            request = Request(*values)
            every.append(request)
            own[index].append(request)
        for attempt in self._attempts:
            attempt.requests = own[attempt.index]
        self._requests = every

    def turns(self, name: str) -> None:
        for n, columns in self._columns(name):
            values = dict(zip(_TURN, columns, strict=True))
            self._parts[n].shard.turns = TurnColumns(self._requests, **values)

    def calls(self) -> None:
        for index, calls in groupby(self._rows("calls"), itemgetter(0)):
            attempt = self._attempts[index]
            loose = attempt.loose_calls = LooseCallColumns(attempt.loose_calls)
            for _, *call in calls:
                loose.append(LooseCall(*call))

    def tools(self) -> None:
        for n, calls in groupby(self._rows("tools"), itemgetter(0)):
            tools = self._parts[n].shard.tool_calls = ToolColumns()
            for _, row, *call in calls:
                tools.add(row, ToolCall(*call))

    def verifications(self) -> None:
        """Give calls of reward functions, in the order of their starts."""
        functions = [function for (function,) in self._rows("functions")]
        for n, columns in self._columns("verifications"):
            starts, process, rows, ends, attempts, timeouts, numbers = columns
            shard = self._parts[n].shard
            calls = RewardCallColumns.of(
                [functions[number] for number in numbers], process=process, start_ns=starts,
                end_ns=ends, rows=rows, attempts=attempts, timeouts=timeouts,
                samples=array("q", [1]) * len(numbers),
            )  # fmt: skip
            for call in shard.calls:
                calls.append(call)
            shard.calls = calls.by_start()

    def rewards(self) -> None:
        """Give rewards where the trainer recorded none; else the times of their verification."""
        given = dict[int, list[RewardColumn]]()
        functions = self._rows("rewarding")
        for place, (values, odd, times) in self._columns("rewards"):
            n, number = divmod(place, len(functions))
            index, function = functions[number]
            measured = MeasureColumn(values, compress(count(), odd))
            column = RewardColumn(function, index, measured, MeasureColumn(times))
            given.setdefault(n, []).append(column)
        for n, found in given.items():
            shard = self._parts[n].shard
            if not shard.rewards:
                shard.rewards = found
            elif len(found) == 1:
                [told] = shard.rewards
                shard.rewards = [replace(told, verify_s=found[0].verify_s)]


def _give_trajectories(
    shard: BatchShard,
    is_told_by_span: bool,
    starts: array[int],
    ends: array[int],
    engines: array[int],
    oldest: array[int],
    newest: array[int],
    truncated: array[int],
) -> None:
    shard.times_ns = PairColumn(starts, ends)
    if is_told_by_span:
        return
    if max(newest) >= 0:
        shard.policy_versions = PairColumn(oldest, newest)
    if shard.engines is None and max(engines) >= 0:
        shard.engines = SparseColumn.of(engines)
    if shard.truncated is None and min(truncated) >= 0:
        shard.truncated = bytes(truncated.tolist())
