"""What is known of some trajectories of a workload and not of others."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_probe.model.batch import BatchShard
from rlvr_probe.model.workload import WorkloadBatch

__all__ = ["unknown_notes"]


def unknown_notes(batches: Sequence[WorkloadBatch]) -> list[str]:
    """Of how many trajectories something is not known that is known of others."""
    shards = [shard for taken in batches for shard in taken.batch.shards]
    rows = sum(len(shard.response_tokens) for shard in shards)
    counts = {
        "the rollout engine": _lacking(shards, "engines"),
        "when it began and ended": _lacking(shards, "times_ns"),
        "the policy version": _lacking(shards, "policy_versions"),
        "a reward": sum(len(shard.response_tokens) for shard in shards if not shard.rewards),
        "whether it was cut off": _lacking(shards, "truncated"),
        "the loss mask": _lacking(shards, "loss_runs"),
    }
    return [
        f"{what} is not known of {count:,} of {rows:,} trajectories"
        for what, count in counts.items()
        if 0 < count < rows
    ]


def _lacking(shards: Sequence[BatchShard], name: str) -> int:
    total = 0
    for shard in shards:
        column = getattr(shard, name)
        total += (
            len(shard.response_tokens) if column is None else sum(one is None for one in column)
        )
    return total
