"""How long reward functions let a rank wait, with the concurrency that was recorded.

:func:`reward_waits` is for frameworks that call a function once for all samples of a rank,
:func:`row_waits` for those that call it for each sample.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace

from rlvr_probe.steering.plan import Plan, PlannedBatch, PlannedCall

__all__ = ["concurrent_functions", "reward_waits", "row_waits"]


def concurrent_functions(plan: Plan) -> frozenset[int]:
    """Functions that ran at the same time as another one, for the same rows."""
    found = set[int]()
    for batch in plan.batches:
        for calls in _by_share(batch).values():
            for at, call in enumerate(calls):
                for other in calls[at + 1 :]:
                    if other.function != call.function and _overlap(call, other):
                        found |= {call.function, other.function}
    return frozenset(found)


def _overlap(first: PlannedCall, then: PlannedCall) -> bool:
    if first.start_s is None or then.start_s is None:
        return False
    return (
        then.start_s < first.start_s + first.seconds and first.start_s < then.start_s + then.seconds
    )


def reward_waits(
    batch: PlannedBatch, functions: int, share: int, shares: int, apart: Collection[int] = ()
) -> list[float]:
    """Seconds that each function is to take for the rows of one rank.

    The union of its calls, as far as they were after the rollout, without what a function before it
    had covered already: called one after the other, they take as long as recorded together.

    Args:
        batch: What is computed.
        functions: How many there are.
        share: Rank.
        shares: Ranks. If another number was recorded, each waits for the slowest of those.
        apart: Functions that are called at the same time, whose times stay their own.
    """
    by_share = _by_share(batch)
    waits = [_waits(by_share.get(at, ()), functions, apart) for at in range(batch.shares)]
    if shares == batch.shares:
        return waits[share]
    return max(waits, key=sum)


def row_waits(batch: PlannedBatch) -> dict[int, float]:
    """By row, seconds in which any of its own calls ran, during the rollout, too.

    Those of unknown start ran one after the other.
    """
    by_row = defaultdict[int, list[PlannedCall]](list)
    for call in batch.calls:
        if call.row is not None:
            by_row[call.row].append(replace(call, function=0))
    return {row: _waits(calls, 1, (), -math.inf)[0] for row, calls in by_row.items()}


def _by_share(batch: PlannedBatch) -> dict[int, list[PlannedCall]]:
    found = defaultdict[int, list[PlannedCall]](list)
    for call in batch.calls:
        found[call.share].append(call)
    return found


def _waits(
    calls: Iterable[PlannedCall], functions: int, apart: Collection[int], begin_s: float = 0.0
) -> list[float]:
    waits = [0.0] * functions
    # Until when each function, or with None all that are called in turn, has covered the time.
    covered = defaultdict[int | None, float](lambda: begin_s)
    for call in sorted(calls, key=lambda call: call.start_s or 0.0):
        if call.start_s is None:
            waits[call.function] += call.seconds
            continue
        key = call.function if call.function in apart else None
        end = call.start_s + call.seconds
        waits[call.function] += max(0.0, end - max(call.start_s, covered[key]))
        covered[key] = max(covered[key], end)
    return waits
