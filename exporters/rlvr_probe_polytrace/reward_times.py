"""Reward time of each data-parallel rank, and by how much it delays the rollout."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from rlvr_probe.model.batch import BatchShard, RewardCall
from rlvr_probe_polytrace.placement import (
    Layout,
    Placement,
    PlannedBatch,
    engine_of,
    groups_of,
)
from rlvr_probe_polytrace.x_rlvr import seconds

__all__ = ["lag_seconds", "reward_seconds"]


def reward_seconds(
    planned: PlannedBatch, layout: Layout, placement: Placement, *, lag: bool = False
) -> dict[int, float] | None:
    """Wall seconds of reward work by data-parallel rank; None unless known for each: not 0 s.

    A call that rewarded whole batches counts on every rank that holds rows of its process: each
    waited for it. One that verified a single trajectory counts where that is placed; calls of other
    processes than the one that generated overlap, so that the time in which any of them ran counts,
    after the last trajectory of the rank was generated: until then it is time of the rollout, which
    a replay takes as well. Processes folded into one rank worked side by side, so the slowest
    counts. Only the functions' own calls count, not the wait of a rank for the others.

    Args:
        planned: The batch.
        layout: Where its groups started.
        placement: Data-parallel ranks.
        lag: Count only what lies behind the rollout of the process.
    """
    dp_of_group = _placed(layout, placement)
    # Of each data-parallel rank: by process, and whether they verified a placed trajectory.
    calls = defaultdict[int, dict[tuple[int | None, bool], list[RewardCall]]](dict)
    generated: dict[int, int] = {}
    for shard in planned.batch.batch.shards:
        groups = list(groups_of(planned.batch, shard))
        own = _ranks_of(planned, shard, groups, dp_of_group, placement)
        if lag and shard.end_ns is None:
            return None
        from_ns = shard.end_ns if lag else None
        shard_calls = [(call, _of_one_row(shard, call)) for call in shard.calls]
        if len(own) > 1 and any(alone and call.row is None for call, alone in shard_calls):
            return None
        rows = {call.row for call in shard.calls if call.row is not None}
        if rows and all(alone for _, alone in shard_calls):
            wanted = {row for row, group in enumerate(groups) if group in dp_of_group}
            if not wanted <= rows:
                return None
        for call, alone in shard_calls:
            ranks, elsewhere = own, alone and call.process != shard.process
            if call.row is not None:
                placed = dp_of_group.get(groups[call.row])
                if placed is None:
                    continue
                end_ns = _generated_ns(shard, call)
                if end_ns is None:
                    return None
                generated[placed] = max(end_ns, generated.get(placed, end_ns))
                ranks = {placed}
            key = (None if elsewhere else call.process), call.row is not None
            for dp_rank in ranks:
                noted = calls[dp_rank].setdefault(key, [])
                noted += [call] if from_ns is None else _after(from_ns, [call])
    if calls.keys() != set(range(placement.dp_size)):
        return None
    return {
        dp_rank: seconds(
            max(
                _busy_ns(_after(generated[dp_rank], members) if verified else members)
                for (_, verified), members in calls[dp_rank].items()
            )
        )
        for dp_rank in range(placement.dp_size)
    }


def lag_seconds(planned: PlannedBatch, layout: Layout, placement: Placement) -> float | None:
    """Seconds from the end of the rollout until its slowest rank is rewarded too; None if unknown.

    That is by how much rllm's ``gen`` is longer than the rollout: each of its workers rewards what
    it generated at once, and does not wait for the others.
    """
    lags = reward_seconds(planned, layout, placement, lag=True)
    if lags is None:
        return None
    dp_of_group = _placed(layout, placement)
    rollouts = dict[int, int]()
    for shard in planned.batch.batch.shards:
        if shard.start_ns is None or shard.end_ns is None:
            return None
        took_ns = shard.end_ns - shard.start_ns
        groups = groups_of(planned.batch, shard)
        for dp_rank in _ranks_of(planned, shard, groups, dp_of_group, placement):
            rollouts[dp_rank] = max(took_ns, rollouts.get(dp_rank, 0))
    done_s = max(seconds(took_ns) + lags[dp_rank] for dp_rank, took_ns in rollouts.items())
    return done_s - seconds(max(rollouts.values()))


def _placed(layout: Layout, placement: Placement) -> dict[int, int]:
    """Data-parallel rank of each group."""
    return {
        group: placement.dp_rank(head)
        for group, head in zip(layout.groups, layout.heads, strict=True)
    }


def _ranks_of(
    planned: PlannedBatch,
    shard: BatchShard,
    groups: Iterable[int],
    dp_of_group: Mapping[int, int],
    placement: Placement,
) -> set[int]:
    """The data-parallel ranks that hold rows of a shard."""
    if shard.engines is None:
        return {placement.dp_rank(engine_of(planned.batch, shard, placement.tp))}
    return {dp_of_group[group] for group in groups if group in dp_of_group}


def _generated_ns(shard: BatchShard, call: RewardCall) -> int | None:
    """When the trajectory that ``call`` verified was generated, or all of its shard; None: unknown.

    The rollout of a shard may lie around the verification of what was generated in it.
    """
    turns = shard.turns.get(call.row or 0)
    if turns:
        return turns[-1].end_ns
    return shard.end_ns if shard.end_ns is not None and shard.end_ns <= call.start_ns else None


def _after(from_ns: int, calls: Iterable[RewardCall]) -> Iterator[RewardCall]:
    """What of ``calls`` lies after a time."""
    for call in calls:
        if call.end_ns > from_ns:
            yield replace(call, start_ns=max(call.start_ns, from_ns))


def _of_one_row(shard: BatchShard, call: RewardCall) -> bool:
    """Whether a call is of one row of its shard, and not of all."""
    return call.row is not None or (call.process != shard.process and call.samples == 1)


def _busy_ns(calls: Iterable[RewardCall]) -> int:
    """Time in which at least one of ``calls`` ran, ns: asynchronous functions overlap."""
    busy = 0
    until: int | None = None
    for call in sorted(calls, key=lambda call: call.start_ns):
        start = call.start_ns if until is None else max(call.start_ns, until)
        busy += max(0, call.end_ns - start)
        until = call.end_ns if until is None else max(until, call.end_ns)
    return busy
