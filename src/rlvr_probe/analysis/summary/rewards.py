"""What reward functions gave, and how long they took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite
from typing import Any

from rlvr_probe.model.batch import Batch
from rlvr_probe.model.columns import finite_of, unknown_in
from rlvr_probe.model.verifications import RewardCalls

__all__ = ["rewards"]


def rewards(batches: Sequence[Batch]) -> list[dict[str, Any]]:
    """Per reward function: mean value, time of its calls, and how often a service was asked.

    Of one that gave values and that nobody was seen to call, calls are unknown: another process
    verified, and did not tell for whom. Of one that was called and gave values to nobody that is
    known, the values are.
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
        for name, told in shard.calls.by_function().items():
            calls[name] = calls[name] + told if name in calls else told
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
