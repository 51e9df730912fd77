"""Turns per trajectory, and what each tool was asked for and how long it took."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.analysis.quantiles import distribution
from rlvr_probe.model.batch import Batch, BatchShard
from rlvr_probe.model.turns import TurnColumns

__all__ = ["tool_use", "turn_counts"]


@dataclass(slots=True)
class _Tool:
    latency_s: array[float] = field(default_factory=lambda: array("d"))
    statuses: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


def turn_counts(batches: Sequence[Batch]) -> dict[str, Any] | None:
    """How many turns trajectories had; None where turns were not recorded one by one."""
    shards = [shard for batch in batches for shard in batch.shards]
    counts = array("I", sorted(count for shard in shards for count in _counts(shard)))
    if not counts:
        return None
    return {
        "trajectories": len(counts),
        "unknown": sum(batch.rows for batch in batches) - len(counts),
        "turns": sum(counts),
        "several_turns": sum(count > 1 for count in counts),
        "per_trajectory": distribution(counts),
        "loss_tokens": _loss_tokens(shards),
    }


def _counts(shard: BatchShard) -> Iterable[int]:
    turns = shard.turns
    return turns.counts() if isinstance(turns, TurnColumns) else map(len, turns.values())


def _loss_tokens(shards: Iterable[BatchShard]) -> int | None:
    """Response tokens in the loss where every shard with turns says so."""
    total = 0
    for shard in shards:
        if shard.loss_runs is not None:
            total += sum(sum(runs[::2]) for runs in shard.loss_runs)
        elif shard.turns:
            return None
    return total


def tool_use(batches: Iterable[Batch]) -> list[dict[str, Any]]:
    """Per tool, the most called one first: calls, outcomes and latency."""
    tools = dict[str | None, _Tool]()
    for batch in batches:
        for shard in batch.shards:
            for calls in shard.tool_calls.values():
                for call in calls:
                    tool = tools.setdefault(call.tool, _Tool())
                    tool.latency_s.append(call.latency_s)
                    tool.statuses[call.status or "unknown"] += 1
                    if call.error is not None:
                        tool.errors[call.error] += 1
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
