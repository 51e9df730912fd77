"""Gives a trace what the tables say of single trajectories: exporters ask the trace alone."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import accumulate, groupby, zip_longest
from math import nan
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rlvr_probe.model.batch import BatchShard, RewardColumn
from rlvr_probe.model.columns import MeasureColumn, PairColumn, RaggedColumn, SparseColumn
from rlvr_probe.model.requests import Request, RequestColumns
from rlvr_probe.model.reward_calls import RewardCallColumns
from rlvr_probe.model.trace import Attempt
from rlvr_probe.model.turns import LooseCall, LooseCallColumns, ToolCall, ToolColumns, TurnColumns
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
    rows = store.rows
    asked = ["trajectories", "masks"]
    if store.has_requests:
        asked.append("requests")
    if rows["q_turn"]:
        asked += ["turns_of_requests" if store.has_requests else "turns", "calls"]
    if rows["q_tool"]:
        asked.append("tools")
    if rows["q_verification"]:
        asked += ["verifications", "rewards"]
    restoring = _Restoring(attempts, parts)
    for name, answer in _answers(store, asked):
        getattr(restoring, name.partition("_of_")[0])(answer)


def _answers(store: FineStore, names: Sequence[str]) -> Iterator[tuple[str, list[Any]]]:
    """What queries answer, by name; the next one is asked while an answer is used."""
    sql, _ = store.open()
    texts = statements("rlvr_probe.recording.fine", "restore.sql")
    with ThreadPoolExecutor(1, "rlvr-probe-restore") as beside:
        coming = beside.submit(_ask, sql, texts[names[0]])
        for name, following in zip_longest(names, names[1:]):
            answer = coming.result()
            if following is not None:
                coming = beside.submit(_ask, sql, texts[following])
            yield name, answer


def _ask(sql: duckdb.DuckDBPyConnection, text: str) -> list[Any]:
    return sql.execute(text).fetchall()


class _Restoring:
    """Gives what each query of ``restore.sql`` answers to the trace."""

    def __init__(self, attempts: Sequence[Attempt], parts: Sequence[Part]) -> None:
        self._attempts, self._parts = attempts, parts
        self._requests: Sequence[Request] = ()

    def trajectories(self, rows: Sequence[Any]) -> None:
        for n, text in rows:
            part = self._parts[n]
            _give_trajectories(part.shard, part.row.spans is not None, text)

    def masks(self, rows: Sequence[Any]) -> None:
        for n, tokens, sizes in rows:
            self._parts[n].shard.loss_runs = RaggedColumn.of(
                array("I", msgspec.json.decode(tokens)),
                array("Q", accumulate(msgspec.json.decode(sizes))),
            )

    def requests(self, rows: Sequence[Any]) -> None:
        """Give the requests of all attempts; each is given its own."""
        every = RequestColumns()
        own = {attempt.index: RequestColumns() for attempt in self._attempts}
        for index, joined, *values in rows:
            request = Request(*values)
            every.append(request)
            own[index].append(request)
            self._attempts[index].unjoined_requests += not joined
        for attempt in self._attempts:
            attempt.requests = own[attempt.index]
        self._requests = every

    def turns(self, rows: Sequence[Any]) -> None:
        for n, text in rows:
            values = dict(zip(_TURN, _columns(text, len(_TURN)), strict=True))
            self._parts[n].shard.turns = TurnColumns(self._requests, **values)

    def calls(self, rows: Sequence[Any]) -> None:
        for index, calls in groupby(rows, itemgetter(0)):
            attempt = self._attempts[index]
            loose = attempt.loose_calls = LooseCallColumns(attempt.loose_calls)
            for _, *call in calls:
                loose.append(LooseCall(*call))

    def tools(self, rows: Sequence[Any]) -> None:
        for n, calls in groupby(rows, itemgetter(0)):
            tools = self._parts[n].shard.tool_calls = ToolColumns()
            for _, row, *call in calls:
                tools.add(row, ToolCall(*call))

    def verifications(self, rows: Sequence[Any]) -> None:
        for n, functions in groupby(rows, itemgetter(0)):
            texts = {name: text for _, name, text in functions}
            _give_verifications(self._parts[n].shard, texts)

    def rewards(self, rows: Sequence[Any]) -> None:
        """Give rewards where the trainer recorded none; else the times of their verification."""
        given = dict[int, list[RewardColumn]]()
        for n, index, function, *texts in rows:
            values, odd, times = (msgspec.json.decode(text or "[]") for text in texts)
            column = RewardColumn(function, index, _measures(values, odd), _measures(times))
            given.setdefault(n, []).append(column)
        for n, found in given.items():
            shard = self._parts[n].shard
            if not shard.rewards:
                shard.rewards = found
            elif len(found) == 1:
                [told] = shard.rewards
                shard.rewards = [replace(told, verify_s=found[0].verify_s)]


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
