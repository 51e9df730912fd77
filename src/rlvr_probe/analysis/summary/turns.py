"""Turns per trajectory, and what each tool was asked for and how long it took."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.analysis.statistics import distribution, distribution_of
from rlvr_probe.model.batch import Batch, BatchShard
from rlvr_probe.model.turns import tool_times, turn_counts

__all__ = ["tool_use", "turns"]


@dataclass(slots=True)
class _Tool:
    latency_s: array[float] = field(default_factory=lambda: array("d"))
    statuses: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


def turns(batches: Sequence[Batch]) -> dict[str, Any] | None:
    """How many turns trajectories had; None where turns were not recorded one by one."""
    shards = [shard for batch in batches for shard in batch.shards]
    counts = Counter[int]()
    for shard in shards:
        counts.update(turn_counts(shard.turns))
    if not counts:
        return None
    return {
        "trajectories": counts.total(),
        "unknown": sum(batch.rows for batch in batches) - counts.total(),
        "turns": sum(turns * count for turns, count in counts.items()),
        "several_turns": sum(count for turns, count in counts.items() if turns > 1),
        "per_trajectory": distribution_of(counts),
        "loss_tokens": _loss_tokens(shards),
    }


def _loss_tokens(shards: Iterable[BatchShard]) -> int | None:
    """Response tokens in the loss where every shard with turns says so."""
    total = 0
    for shard in shards:
        tokens = shard.loss_tokens
        if tokens is not None:
            total += tokens
        elif shard.turns:
            return None
    return total


def tool_use(batches: Iterable[Batch]) -> list[dict[str, Any]]:
    """Per tool, the most called one first: calls, outcomes and latency."""
    tools = dict[str | None, _Tool]()
    for batch in batches:
        for shard in batch.shards:
            for name, status, error, latency_s in tool_times(shard.tool_calls):
                tool = tools.setdefault(name, _Tool())
                tool.latency_s.append(latency_s)
                tool.statuses[status or "unknown"] += 1
                if error is not None:
                    tool.errors[error] += 1
    return [
        {
            "tool": name,
            "calls": len(tool.latency_s),
            "statuses": dict(sorted(tool.statuses.items())),
            "errors": dict(sorted(tool.errors.items())),
            "latency_s": distribution(array("d", sorted(tool.latency_s))),
            "total_s": sum(tool.latency_s),
        }
        for name, tool in sorted(
            tools.items(), key=lambda item: (-len(item[1].latency_s), item[0] or "")
        )
    ]
