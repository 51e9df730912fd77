"""Trajectories: how many, how long, their turns, tools and rewards."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from rlvr_probe.analysis.statistics import distribution, distribution_of
from rlvr_probe.model.batch import Batch, BatchShard
from rlvr_probe.model.columns import finite_of, unknown_in
from rlvr_probe.model.reward_calls import RewardCalls
from rlvr_probe.model.turns import tool_times, turn_counts

__all__ = ["Lengths", "counted", "counts", "per_call_s", "rewards", "tool_use", "turns"]


def counted(batches: Iterable[Batch], *, whole: bool) -> list[Batch]:
    """The batches that metrics are made of.

    Args:
        batches: Some of a run.
        whole: Whether any batch of the run is whole: then those that are. What a batch lacks is
            rather long than short.
    """
    return [batch for batch in batches if batch.whole or not whole]


def counts(batches: Sequence[Batch]) -> dict[str, int]:
    """Groups, trajectories and tokens of ``batches``."""
    shards = [shard for batch in batches for shard in batch.shards]
    return {
        "groups": sum(batch.count_groups()[0] for batch in batches),
        "trajectories": sum(batch.rows for batch in batches),
        "prompt_tokens": sum(sum(shard.prompt_tokens) for shard in shards),
        "response_tokens": sum(sum(shard.response_tokens) for shard in shards),
    }


@dataclass(slots=True)
class Lengths:
    """Lengths by how often each is there: adding up such counts costs less than to sort again.

    Attributes:
        prompt, response: Of the trajectories, tokens.
        stopped: Trajectories that the cap stopped.
        known: Those of which it is known whether it did.
    """

    prompt: Counter[int] = field(default_factory=Counter)
    response: Counter[int] = field(default_factory=Counter)
    stopped: int = 0
    known: int = 0

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> Lengths:
        """Those of ``batches``."""
        found = cls()
        for batch in batches:
            for shard in batch.shards:
                found.prompt.update(shard.prompt_tokens)
                found.response.update(shard.response_tokens)
                if shard.truncated is not None:
                    found.stopped += sum(map(bool, shard.truncated))
                    found.known += len(shard.truncated)
        return found

    def __iadd__(self, other: Lengths) -> Lengths:
        """Take those of ``other``, too."""
        self.prompt.update(other.prompt)
        self.response.update(other.response)
        self.stopped += other.stopped
        self.known += other.known
        return self

    def figures(self) -> dict[str, Any]:
        """How long prompts and responses are, and how many the cap stopped."""
        return {
            "prompt_tokens": distribution_of(self.prompt),
            "response_tokens": distribution_of(self.response),
            "truncated_share": self.stopped / self.known if self.known else None,
        }


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
        counts.update(turn_counts(shard.turns).values())
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


def rewards(batches: Sequence[Batch]) -> list[dict[str, Any]]:
    """Per reward function: mean value, time of its calls, and how often a service was asked.

    Where a function gave values and no call of it was recorded, its calls are unknown: another
    process verified, and did not record for which rows. Where it was called and no row is known to
    have its values, the values are unknown.
    """
    values = dict[str, tuple[int, float]]()
    odd, missing = Counter[str](), Counter[str]()
    calls = dict[str, RewardCalls]()
    for shard in (shard for batch in batches for shard in batch.shards):
        for column in shard.rewards:
            name, known = column.function, finite_of(column.values)
            unknown = unknown_in(column.values)
            missing[name] += unknown
            odd[name] += len(column.values) - unknown - len(known)
            count, total = values.get(name, (0, 0.0))
            values[name] = (count + len(known), total + sum(known))
        for name, some in shard.calls.by_function().items():
            calls[name] = calls[name] + some if name in calls else some
    return [
        _entry(
            function, values.get(function), odd[function], missing[function], calls.get(function)
        )
        for function in dict.fromkeys((*values, *calls))
    ]


def _entry(
    function: str,
    values: tuple[int, float] | None,
    odd: int,
    missing: int,
    calls: RewardCalls | None,
) -> dict[str, Any]:
    asked = calls if calls is not None and calls.asked else None
    return {
        "function": function,
        "values": None if values is None else values[0],
        "mean": None if values is None else _mean(*values),
        "not_finite": None if values is None else odd,
        "missing": None if values is None else missing,
        "calls": None if calls is None else calls.calls,
        "total_s": None if calls is None else calls.ns / 1e9,
        "waited": None if calls is None else calls.waited,
        "retries": None if asked is None else asked.retries,
        "timeouts": None if asked is None else asked.timeouts,
    }


def _mean(count: int, total: float) -> float | None:
    # A sum of absurd rewards may be infinite, which JSON cannot say.
    return total / count if count and isfinite(total) else None


def per_call_s(reward: Mapping[str, Any], *, waited: bool) -> float | None:
    """Seconds of a call in an entry of :func:`rewards`; None if its calls are of the other kind.

    Args:
        reward: The entry.
        waited: Whether it is asked how long calls were waited for, or how long they ran.
    """
    known = reward["calls"] and reward["waited"] is waited
    return reward["total_s"] / reward["calls"] if known else None
