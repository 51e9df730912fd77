"""What reward functions gave, and how long they took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite
from typing import Any

from rlvr_probe.model.batch import Batch

__all__ = ["rewards"]


def rewards(batches: Sequence[Batch]) -> list[dict[str, Any]]:
    """Per reward function: mean value, time of its calls, and how often a service was asked.

    Of one that gave values and that nobody was seen to call, calls are unknown: another process
    verified, and did not tell for whom. Of one that was called and gave values to nobody that is
    known, the values are.
    """
    values = dict[str, tuple[int, float]]()
    odd, missing = Counter[str](), Counter[str]()
    calls = dict[str, tuple[int, float]]()
    asked = dict[str, tuple[int, int]]()
    waited = set[str]()
    for shard in (shard for batch in batches for shard in batch.shards):
        for column in shard.rewards:
            given = [value for value in column.values if value is not None]
            known = [value for value in given if isfinite(value)]
            odd[column.function] += len(given) - len(known)
            missing[column.function] += len(column.values) - len(given)
            count, total = values.get(column.function, (0, 0.0))
            values[column.function] = (count + len(known), total + sum(known))
        for function, seconds in shard.calls.seconds():
            count, total = calls.get(function, (0, 0.0))
            calls[function] = (count + 1, total + seconds)
        for function, row, attempts, timeouts in shard.calls.asked():
            if row is not None:
                waited.add(function)
            if attempts is not None:
                again, late = asked.get(function, (0, 0))
                asked[function] = (again + max(0, attempts - 1), late + (timeouts or 0))
    return [
        {
            "function": function,
            "values": values[function][0] if function in values else None,
            "mean": _mean(*values[function]) if function in values else None,
            "not_finite": odd[function] if function in values else None,
            "missing": missing[function] if function in values else None,
            "calls": calls[function][0] if function in calls else None,
            "total_s": calls[function][1] if function in calls else None,
            "waited": function in waited if function in calls else None,
            "retries": asked[function][0] if function in asked else None,
            "timeouts": asked[function][1] if function in asked else None,
        }
        for function in dict.fromkeys((*values, *calls))
    ]  # fmt: skip


def _mean(count: int, total: float) -> float | None:
    # A sum of absurd rewards may be infinite, which JSON cannot say.
    return total / count if count and isfinite(total) else None
