"""What is known of some trajectories of a workload and not of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlvr_probe.model.batch import BatchShard
from rlvr_probe.model.columns import unknown_in
from rlvr_probe.model.workload import WorkloadBatch

__all__ = ["unknown_notes"]


def unknown_notes(batches: Sequence[WorkloadBatch]) -> list[str]:
    """Of how many trajectories something is not known that is known of others."""
    shards = [shard for taken in batches for shard in taken.batch.shards]
    rows = _rows(shards)
    counts = {
        "the rollout engine": sum(_unknown(shard, shard.engines) for shard in shards),
        "when it began and ended": sum(_unknown(shard, shard.times_ns) for shard in shards),
        "the policy version": sum(_unknown(shard, shard.policy_versions) for shard in shards),
        "a reward": _rows(shard for shard in shards if not shard.rewards),
        # Of all rows of a shard, or of none.
        "whether it was cut off": _rows(shard for shard in shards if shard.truncated is None),
        "the loss mask": _rows(shard for shard in shards if shard.loss_runs is None),
    }
    return [
        f"{what} is not known of {count:,} of {rows:,} trajectories"
        for what, count in counts.items()
        if 0 < count < rows
    ]


def _unknown(shard: BatchShard, column: Sequence[object] | None) -> int:
    return len(shard.response_tokens) if column is None else unknown_in(column)


def _rows(shards: Iterable[BatchShard]) -> int:
    return sum(len(shard.response_tokens) for shard in shards)
