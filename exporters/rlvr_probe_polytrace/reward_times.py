"""Reward time of each data-parallel rank, and by how much it delays the rollout."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from rlvr_probe.model.batch import BatchShard
from rlvr_probe.model.turns import turn_ends
from rlvr_probe_polytrace.placement import (
    Layout,
    Placement,
    PlannedBatch,
    engine_of,
    groups_of,
)
from rlvr_probe_polytrace.x_rlvr import seconds

__all__ = ["RewardTimes", "reward_times"]

_Calls = list[tuple[int, int, int | None]]
"""Start and end of calls, and end of the rollout of their shard, ns."""

_EVER_NS: Final = -(1 << 63)
"""Before any time."""


@dataclass(frozen=True, slots=True)
class RewardTimes:
    """Wall seconds of reward work.

    Attributes:
        reward_s: All of it, by data-parallel rank.
        lag_s: From the end of the rollout until its slowest rank is rewarded too; None if unknown.
            That is by how much rllm's ``gen`` is longer than the rollout: each of its workers
            rewards what it generated at once, and does not wait for the others.
    """

    reward_s: Mapping[int, float]
    lag_s: float | None


def reward_times(planned: PlannedBatch, layout: Layout, placement: Placement) -> RewardTimes | None:
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
    """
    dp_of_group = {
        group: placement.dp_rank(head)
        for group, head in zip(layout.groups, layout.heads, strict=True)
    }
    # Of each data-parallel rank: by process, and whether they verified a placed trajectory.
    calls = defaultdict[int, dict[tuple[int | None, bool], _Calls]](dict)
    generated, rollouts = dict[int, int](), dict[int, int]()
    has_rollouts = True
    for shard in planned.batch.batch.shards:
        groups = list(groups_of(planned.batch, shard))
        own = _ranks_of(planned, shard, groups, dp_of_group, placement)
        if shard.start_ns is None or shard.end_ns is None:
            has_rollouts = False
        else:
            took_ns = shard.end_ns - shard.start_ns
            rollouts |= {rank: max(took_ns, rollouts.get(rank, 0)) for rank in own}
        intervals = list(shard.calls.intervals())
        placed_at = [dp_of_group.get(group) for group in groups]
        if not _are_attributed(shard.process, intervals, own, placed_at):
            return None
        ends = turn_ends(shard.turns, len(groups))
        for process, row, samples, start_ns, end_ns in intervals:
            call = start_ns, end_ns, shard.end_ns
            other = process != shard.process
            if row is None:
                key = None if other and samples == 1 else process, False
                for rank in own:
                    calls[rank].setdefault(key, []).append(call)
                continue
            placed, made_ns = placed_at[row], ends[row]
            if placed is None:
                continue
            if made_ns is None:
                made_ns = _shard_end_ns(shard, row, start_ns)
                if made_ns is None:
                    return None
            if made_ns > generated.get(placed, _EVER_NS):
                generated[placed] = made_ns
            calls[placed].setdefault((None if other else process, True), []).append(call)
    if calls.keys() != set(range(placement.dp_size)):
        return None

    def work_s(rank: int, *, lag: bool) -> float:
        """Of the slowest process of a rank; with ``lag``, what lies behind its rollout."""
        return seconds(
            max(
                _busy_ns(members, generated[rank] if verified else _EVER_NS, lag=lag)
                for (_, verified), members in calls[rank].items()
            )
        )

    lag_s = None
    if has_rollouts:
        done_s = max(seconds(ns) + work_s(rank, lag=True) for rank, ns in rollouts.items())
        lag_s = done_s - seconds(max(rollouts.values()))
    return RewardTimes({rank: work_s(rank, lag=False) for rank in range(placement.dp_size)}, lag_s)


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


def _are_attributed(
    own_process: int,
    intervals: Iterable[tuple[int, int | None, int | None, int, int]],
    own: Set[int],
    placed_at: Sequence[int | None],
) -> bool:
    """Whether it is known on which rank each call counts, and none is missing.

    Args:
        own_process: That of the shard.
        intervals: Its calls.
        own: Ranks that hold rows of it.
        placed_at: Rank of each row; None: written nowhere.
    """
    rows, whole = set[int](), False
    for process, row, samples, *_ in intervals:
        if row is not None:
            rows.add(row)
        elif process == own_process or samples != 1:
            whole = True
        elif len(own) > 1:
            return False
    written = (row for row, rank in enumerate(placed_at) if rank is not None)
    return whole or not rows or rows.issuperset(written)


def _shard_end_ns(shard: BatchShard, row: int, start_ns: int) -> int | None:
    """When all of a shard was generated, of a row whose last turn has no known end; None: unknown.

    The rollout of a shard may lie around the verification of what was generated in it.

    Args:
        shard: Of the call.
        row: What it verified.
        start_ns: When it started.
    """
    is_known = not shard.turns.get(row) and shard.end_ns is not None and shard.end_ns <= start_ns
    return shard.end_ns if is_known else None


def _busy_ns(calls: _Calls, from_ns: int, *, lag: bool) -> int:
    """Time after ``from_ns`` in which at least one of ``calls`` ran: asynchronous ones overlap.

    Args:
        calls: As :data:`_Calls`.
        from_ns: Where counting starts.
        lag: Count only what lies behind the rollout of the shard.
    """
    if lag:
        calls = [
            (start_ns if ended_ns is None else max(start_ns, ended_ns), end_ns, None)
            for start_ns, end_ns, ended_ns in calls
        ]
    busy_ns, until_ns = 0, from_ns
    for start_ns, end_ns, _ in sorted(calls, key=itemgetter(0)):
        begin_ns = until_ns if start_ns < until_ns else start_ns
        if end_ns > begin_ns:
            busy_ns += end_ns - begin_ns
            until_ns = end_ns
    return busy_ns
