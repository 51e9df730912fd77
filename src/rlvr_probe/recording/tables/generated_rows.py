"""Rows of what was generated: batches, groups, trajectories, and what belongs to one of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr_probe.model.batch import Batch, BatchShard, Trajectory
from rlvr_probe.model.given import GivenBatch
from rlvr_probe.model.requests import Request
from rlvr_probe.model.trace import Trace
from rlvr_probe.model.turns import Turn
from rlvr_probe.recording.bulk import Bulk, real
from rlvr_probe.recording.fine.columns import CHOSEN
from rlvr_probe.recording.fine.join import all_batches
from rlvr_probe.recording.fine.statements import statements
from rlvr_probe.recording.tables.lasting_rows import Durations, seconds_between
from rlvr_probe.recording.tables.schema import BY_NAME

if TYPE_CHECKING:
    import duckdb

__all__ = ["Numbers", "fill_batch", "fill_batches"]

_Row = Sequence[Any]


@dataclass(slots=True)
class Numbers:
    """The next ``batch_id`` and ``trajectory_id``."""

    batch: int = 0
    trajectory: int = 0


def fill_batches(sql: duckdb.DuckDBPyConnection, bulk: Bulk, trace: Trace) -> None:
    """Every batch of a recording, its groups, and what engines and reward functions did beside.

    Args:
        sql: Has the trajectories.
        bulk: Brings rows there.
        trace: Of the run.
    """
    for number, (step, batch) in enumerate(all_batches(trace.attempts)):
        bulk.add(BY_NAME["batch"], [_batch_row(number, step, batch)])
        bulk.add(CHOSEN, _chosen(number, batch))
        for shard in batch.shards:
            bulk.add(BY_NAME["reward_call"], _call_rows(shard, number))
    _fill_engines(bulk, trace)
    bulk.finish()
    for name in ("groups", "trained"):
        sql.execute(statements("rlvr_probe.recording.fine", "join.sql")[name])


def _chosen(number: int, batch: Batch) -> Iterator[_Row]:
    """Groups that are known to have been kept or used, or not to have been."""
    kept, used = batch.kept, batch.used
    if kept is None and used is None:
        return
    yield number, None, None if kept is None else False, None if used is None else False
    for group in (kept or frozenset()) | (used or frozenset()):
        yield (
            number, group, None if kept is None else group in kept,
            None if used is None else group in used,
        )  # fmt: skip


def _fill_engines(bulk: Bulk, trace: Trace) -> None:
    """Calls of engines that tell of many trajectories in one sum, and reward work for others."""
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


def fill_batch(bulk: Bulk, given: GivenBatch, step: int, numbers: Numbers) -> None:
    """One batch of a workload with all that belongs to it."""
    batch = given.batch
    number, numbers.batch = numbers.batch, numbers.batch + 1
    bulk.add(BY_NAME["batch"], [_batch_row(number, step, batch, given.number)])
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
        if used or (batch.queued and used is None):
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


def _batch_row(
    number: int, step: int | None, batch: Batch, workload_step: int | None = None
) -> _Row:
    return (
        number, step, batch.mode, batch.ordinal, workload_step,
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
    bulk.add(BY_NAME["turn"], (_turn_row(number, turn, took_s) for turn in one.turns))
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


def _turn_row(number: int, turn: Turn, took_s: Mapping[int, float | None]) -> _Row:
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


def _call_rows(shard: BatchShard, batch: int) -> Iterator[_Row]:
    """Rows of ``reward_call``."""
    for call in shard.calls:
        if call.row is None:
            yield (
                batch, call.process, call.function, call.start_ns, call.end_ns,
                seconds_between(call.start_ns, call.end_ns), call.samples,
            )  # fmt: skip
