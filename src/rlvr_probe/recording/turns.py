"""Joins turns, tool calls and verifications with the trajectories they belong to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import isfinite, isnan, nan

from rlvr_probe.model.batch import BatchShard, RewardColumn
from rlvr_probe.model.columns import MeasureColumn
from rlvr_probe.model.turns import (
    EngineCall,
    LooseCall,
    LooseCallColumns,
    RewardCall,
    ToolCall,
    ToolColumns,
    TurnColumns,
)
from rlvr_probe.recording.clock import RunClock
from rlvr_probe.recording.load import Recorded
from rlvr_probe.recording.requests import Requests
from rlvr_probe.recording.rows import TurnRow

__all__ = ["Joined", "Joining", "Places", "join_turns", "join_verifications"]

Places = Mapping[int, tuple[BatchShard, int]]
"""Shard and row of each trajectory that has a span, by its id in one process."""


@dataclass(slots=True)
class Joined:
    """What has been joined so far, by the identity of a shard: several processes add to one."""

    requests: Requests
    loose: LooseCallColumns
    shards: dict[int, BatchShard] = field(default_factory=dict)
    turns: dict[int, TurnColumns] = field(default_factory=dict)
    tools: dict[int, ToolColumns] = field(default_factory=dict)
    values: dict[int, dict[str, _Values]] = field(default_factory=dict)

    def give(
        self, shard: BatchShard, local: int, function: str, value: float, verify_s: float | None
    ) -> None:
        """Add what ``function`` gave a row, and the time of its own verification, s."""
        self.shards[id(shard)] = shard
        columns = self.values.setdefault(id(shard), {})
        size = len(shard.response_tokens)
        column = columns.get(function)
        if column is None:
            column = columns[function] = _Values(
                MeasureColumn(size), MeasureColumn(size), bytearray(size)
            )
        if column.seen[local]:
            # Given twice: which of them counted is not known.
            column.value[local] = column.verify_s[local] = None
            return
        column.seen[local] = 1
        column.value[local] = None if isnan(value) else value if isfinite(value) else nan
        column.verify_s[local] = verify_s

    def finish(self) -> None:
        """Give the shards what was joined."""
        for key, turns in self.turns.items():
            self.shards[key].turns = turns
        for key, tools in self.tools.items():
            self.shards[key].tool_calls = tools
        for key, by_function in self.values.items():
            _add_rewards(self.shards[key], by_function)


@dataclass(slots=True)
class _Values:
    """What one function gave the rows of a shard, and which it was called for."""

    value: MeasureColumn
    verify_s: MeasureColumn
    seen: bytearray


@dataclass(frozen=True, slots=True)
class Joining:
    """One process whose rows are joined, and what with.

    Attributes:
        index: The process, in the run.
        recorded: The same.
        clock: Clock of the run.
        shards: Its shards by batch.
        places: Shard and row of each trajectory that has a span of its own.
        split: Batches of which this process has several shards: rows of theirs cannot be placed.
        skipped: Gets the rows that contradict their batch, or cannot be placed in it.
        joined: Gets the rest.
    """

    index: int
    recorded: Recorded
    clock: RunClock
    shards: Mapping[int, BatchShard]
    places: Places
    split: Set[int]
    skipped: Counter[str]
    joined: Joined

    def place(self, batch: int, row: int | None) -> tuple[BatchShard | None, int | None]:
        """Shard of ``batch``, and the row in it: its own where it is a trajectory, else ``row``."""
        return self.places.get(batch) or (self.shards.get(batch), row)

    def leave(
        self, start_ns: int, end_ns: int, samples: int | None, response_tokens: int | None
    ) -> None:
        """Keep a call of the engine that no trajectory has; times of the process's clock, ns."""
        at = self.clock.at
        self.joined.loose.append(
            LooseCall(
                self.index,
                at(self.recorded, start_ns),
                at(self.recorded, end_ns),
                samples,
                response_tokens,
            )
        )

    def turns_of(self, shard: BatchShard) -> TurnColumns:
        """Where turns of this shard are gathered."""
        self.joined.shards[id(shard)] = shard
        turns = self.joined.turns.get(id(shard))
        if turns is None:
            turns = TurnColumns(requests=self.joined.requests.found)
            self.joined.turns[id(shard)] = turns
        return turns


def join_turns(one: Joining) -> None:
    """Add the turns and tool calls of a process to those that are joined.

    Those of a batch that was never finished belong to no trajectory: they are loose calls, as are
    those that tell of a batch as a whole.
    """
    for whole in one.recorded.journal.whole_calls:
        one.leave(whole.start_ns, whole.end_ns, whole.samples, whole.response_tokens)
    for row in one.recorded.journal.turns:
        shard, only = one.place(row.batch, None)
        if shard is None:
            one.skipped["unjoined_turns"] += row.batch in one.split
            one.leave(row.start_ns, row.end_ns, len(row.turns), sum(row.response_tokens))
            continue
        call = _engine_call(row, only, len(shard.response_tokens), one.recorded, one.clock)
        if call is None:
            one.skipped["unjoined_turns"] += 1
        else:
            one.turns_of(shard).add(call)
    _join_lone(one)
    _join_tools(one)


def _join_lone(one: Joining) -> None:
    recorded, clock = one.recorded, one.clock
    lone = recorded.journal.lone_turns
    for at, batch in enumerate(lone.batch):
        shard, local = one.place(batch, lone.row[at])
        if shard is None:
            one.skipped["unjoined_turns"] += batch in one.split
            one.leave(lone.start_ns[at], lone.end_ns[at], 1, lone.response_tokens[at])
            continue
        if local is None:
            local = 0 if len(shard.response_tokens) == 1 else -1
        if not 0 <= local < len(shard.response_tokens):
            one.skipped["unjoined_turns"] += 1
            continue
        cached = lone.cached_tokens[at]
        start_ns, end_ns = (
            clock.at(recorded, lone.start_ns[at]),
            clock.at(recorded, lone.end_ns[at]),
        )
        call = EngineCall(
            rows=(local,),
            turns=(lone.turn[at],),
            prompt_tokens=(lone.prompt_tokens[at],),
            response_tokens=(lone.response_tokens[at],),
            cached_tokens=None if cached is None else (cached,),
            start_ns=start_ns,
            end_ns=end_ns,
            request=_request_of(one, at, start_ns, end_ns),
        )
        one.turns_of(shard).add(call)


def _request_of(one: Joining, at: int, start_ns: int, end_ns: int) -> int | None:
    """The request of turn ``at``: as its engine told it, else as the turn itself does."""
    lone, requests = one.recorded.journal.lone_turns, one.joined.requests
    number = requests.of_turn(
        one.index, one.recorded, lone.span[at], lone.name[at], start_ns, end_ns
    )
    teller = lone.teller[at]
    if number is None and teller is not None:
        told = replace(lone.told[teller], process=one.index, start_ns=start_ns, end_ns=end_ns)
        number = requests.add_told(told)
    return number


def _join_tools(one: Joining) -> None:
    recorded, clock, joined = one.recorded, one.clock, one.joined
    tools = recorded.journal.tool_calls
    words = list(tools.words)
    for at, batch in enumerate(tools.batch):
        shard, local = one.place(batch, tools.row[at])
        if shard is None or local is None:
            one.skipped["unjoined_turns"] += batch in one.split
            continue
        if local >= len(shard.response_tokens):
            one.skipped["unjoined_turns"] += 1
            continue
        call = ToolCall(
            tools.turn[at],
            *words[tools.word[at]],
            clock.at(recorded, tools.start_ns[at]),
            clock.at(recorded, tools.end_ns[at]),
        )
        joined.shards[id(shard)] = shard
        joined.tools.setdefault(id(shard), ToolColumns()).add(local, call)


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


def join_verifications(one: Joining) -> None:
    """Add the verifications of a process to those joined, and their calls to the shards."""
    recorded, clock, joined = one.recorded, one.clock, one.joined
    verified = recorded.journal.verified
    functions = list(verified.functions)
    for at, batch in enumerate(verified.batch):
        function, value = functions[verified.function[at]], verified.value[at]
        for span in verified.shared.get(at, ()):
            if span in one.places:
                joined.give(*one.places[span], function, value, None)
        place = one.places.get(batch)
        if place is None:
            continue
        shard, local = place
        start_ns = clock.at(recorded, verified.start_ns[at])
        end_ns = clock.at(recorded, verified.end_ns[at])
        asked = verified.attempts[at], verified.timeouts[at]
        shard.calls.append(RewardCall(one.index, function, start_ns, end_ns, 1, local, *asked))
        joined.give(shard, local, function, value, (end_ns - start_ns) / 1e9)


def _add_rewards(shard: BatchShard, by_function: Mapping[str, _Values]) -> None:
    """Rewards where the trainer told none; else the times of their verification.

    A column that the trainer told has no times of its own yet, and the one function that verified
    is what it tells of.
    """
    if not shard.rewards:
        shard.rewards = [
            RewardColumn(function, index, column.value, column.verify_s)
            for index, (function, column) in enumerate(sorted(by_function.items()))
        ]
        return
    if len(shard.rewards) == len(by_function) == 1:
        [told], [column] = shard.rewards, by_function.values()
        if told.verify_s is None:
            shard.rewards = [RewardColumn(told.function, told.index, told.values, column.verify_s)]
