"""Rows of what was generated: batches, groups, trajectories, and what belongs to one of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_probe.model.batch import Batch, BatchShard, Trajectory
from rlvr_probe.model.given import GivenBatch
from rlvr_probe.model.requests import Request
from rlvr_probe.model.trace import Step, Trace
from rlvr_probe.model.turns import Turn
from rlvr_probe.recording.bulk import Bulk, real
from rlvr_probe.recording.tables.lasting_rows import Durations, seconds_between
from rlvr_probe.recording.tables.schema import BY_NAME

__all__ = [
    "Numbers",
    "batch_row",
    "call_rows",
    "fill_batch",
    "fill_batches",
    "fill_engines",
    "turn_row",
]

_Row = Sequence[Any]


@dataclass(slots=True)
class Numbers:
    """The next ``batch_id`` and ``trajectory_id``."""

    batch: int = 0
    trajectory: int = 0


def fill_batches(bulk: Bulk, trace: Trace, steps: Sequence[Step], numbers: Numbers) -> None:
    """Everything that was generated in ``steps``, whose places are their numbers; requests."""
    for at, step in enumerate(steps):
        for batch in (*step.batches, *step.evaluations):
            fill_batch(bulk, batch, at, numbers)
    for attempt in trace.attempts:
        for batch in attempt.untrained:
            fill_batch(bulk, batch, None, numbers)
    fill_engines(bulk, trace)


def fill_engines(bulk: Bulk, trace: Trace) -> None:
    """Calls of engines that are no turn, and their requests."""
    bulk.add(
        BY_NAME["engine_call"],
        (
            (
                attempt.index, one.process, one.start_ns, one.end_ns, one.samples,
                one.response_tokens,
            )
            for attempt in trace.attempts
            for one in attempt.loose_calls
        ),
    )  # fmt: skip
    bulk.add(
        BY_NAME["reward_work"],
        (
            (one.process, one.function, one.calls, one.mean_start_ns, one.seconds, one.errors)
            for one in trace.reward_work
        ),
    )
    bulk.add(
        BY_NAME["request"],
        (
            (
                attempt.index, one.process, one.start_ns, one.end_ns, one.prompt_tokens,
                one.response_tokens, one.cached_tokens, *_served(one),
            )
            for attempt in trace.attempts
            for one in attempt.requests
        ),
    )  # fmt: skip


def fill_batch(
    bulk: Bulk, batch: Batch, step: int | None, numbers: Numbers, given: GivenBatch | None = None
) -> None:
    """One batch with all that belongs to it; ``given`` is what else a workload says of it."""
    number, numbers.batch = numbers.batch, numbers.batch + 1
    bulk.add(BY_NAME["batch"], [batch_row(number, step, batch, given)])
    first = numbers.trajectory
    lasting = Durations(given)
    for group in batch.groups():
        kept, used = (
            None if chosen is None else group.index in chosen for chosen in (batch.kept, batch.used)
        )
        held = group.trajectories
        bulk.add(
            BY_NAME["prompt_group"], [(number, group.index, group.size, len(held), kept, used)]
        )
        if step is not None and (used or (batch.queued and used is None)):
            bulk.add(BY_NAME["trained"], [(step, number, group.index)])
        for one in held:
            head = (numbers.trajectory, number, step, batch.mode)
            own = _has_own_times(batch, one, numbers.trajectory - first)
            row = _trajectory_row(head, group.index, one, own, lasting)
            bulk.add(BY_NAME["trajectory"], [row])
            _fill_parts(bulk, one, numbers.trajectory, lasting.turns.get(one.row, {}))
            numbers.trajectory += 1
    bulk.add(BY_NAME["tool_call"], lasting.tool_rows(first))
    bulk.add(BY_NAME["reward_call"], lasting.reward_rows(number))
    for shard in batch.shards:
        _fill_calls(bulk, shard, number, first)
        first += len(shard.response_tokens)


def batch_row(number: int, step: int | None, batch: Batch, given: GivenBatch | None = None) -> _Row:
    """Row of ``batch``."""
    return (
        number, step, batch.mode, batch.ordinal, None if given is None else given.number,
        batch.policy_version, batch.group_size, batch.total, batch.rows, batch.queued,
        batch.ragged, batch.whole,
    )  # fmt: skip


def _has_own_times(batch: Batch, one: Trajectory, place: int) -> bool | None:
    """Whether the times of the trajectory at ``place`` of a batch are not those of its rollout."""
    if one.start_ns is None:
        return None
    for shard in batch.shards:
        if place < len(shard.response_tokens):
            return shard.times_ns is not None
        place -= len(shard.response_tokens)
    return None


def _trajectory_row(
    head: _Row, group: int, one: Trajectory, own: bool | None, lasting: Durations
) -> _Row:
    return (
        *head, one.process if lasting.placed else None, one.row, group, one.sample,
        one.prompt_tokens, one.response_tokens, one.loss_tokens, lasting.context_of(one.row),
        one.truncated, one.engine, one.policy_version,
        *(one.policy_versions or (None, None)), one.start_ns, one.end_ns, own,
    )  # fmt: skip


def _fill_parts(
    bulk: Bulk, one: Trajectory, number: int, took_s: Mapping[int, float | None]
) -> None:
    """Turns, tool calls and rewards of one trajectory; ``took_s`` is of turns without a moment."""
    bulk.add(BY_NAME["turn"], (turn_row(number, turn, took_s) for turn in one.turns))
    bulk.add(
        BY_NAME["tool_call"],
        (
            (
                number,
                call.turn,
                call.tool,
                call.status,
                call.error,
                call.start_ns,
                call.end_ns,
                seconds_between(call.start_ns, call.end_ns),
                None,
                None,
            )
            for call in one.tool_calls
        ),
    )
    bulk.add(
        BY_NAME["reward"],
        (
            (number, reward.function, reward.index, real(reward.value), reward.verify_s)
            for reward in one.rewards
        ),
    )


def turn_row(number: int, turn: Turn, took_s: Mapping[int, float | None]) -> _Row:
    """Row of ``turn``; ``took_s`` is of turns without a moment."""
    return (
        number, turn.index, turn.prompt_tokens, turn.response_tokens, turn.cached_tokens,
        turn.start_ns, turn.end_ns,
        took_s.get(turn.index, seconds_between(turn.start_ns, turn.end_ns)),
        *_served(turn.request),
    )  # fmt: skip


def _served(request: Request | None) -> _Row:
    if request is None:
        return (None,) * 5
    return (
        request.queue_s, request.prefill_s, request.decode_s, request.preemptions, request.finish,
    )  # fmt: skip


def _fill_calls(bulk: Bulk, shard: BatchShard, batch: int, first: int) -> None:
    """Calls of reward functions; ``first`` is the number of the shard's first trajectory."""

    def verified() -> Iterator[_Row]:
        for call in shard.calls:
            if call.row is not None:
                yield (
                    first + call.row, call.process, call.function, call.start_ns, call.end_ns,
                    call.attempts, call.timeouts,
                )  # fmt: skip

    bulk.add(BY_NAME["verification"], verified())
    bulk.add(BY_NAME["reward_call"], call_rows(shard, batch))


def call_rows(shard: BatchShard, batch: int) -> Iterator[_Row]:
    """Rows of ``reward_call``."""
    for call in shard.calls:
        if call.row is None:
            yield (
                batch, call.process, call.function, call.start_ns, call.end_ns,
                seconds_between(call.start_ns, call.end_ns), call.samples,
            )  # fmt: skip
