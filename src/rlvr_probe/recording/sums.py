"""What is known of all processes together, or of all calls of one, and of none by itself."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_probe.model.trace import RewardWork
from rlvr_probe.recording.clock import RunClock
from rlvr_probe.recording.load import Recorded

__all__ = ["fine_totals", "reward_work"]


def fine_totals(processes: Sequence[Recorded]) -> dict[str, tuple[int, float]]:
    """Count and summed duration, s, of the spans that are not kept, by name."""
    totals = dict[str, tuple[int, int]]()
    for one in processes:
        for name, (count, duration_ns) in one.journal.totals.items():
            before = totals.get(name, (0, 0))
            totals[name] = (before[0] + count, before[1] + duration_ns)
    return {name: (count, total / 1e9) for name, (count, total) in sorted(totals.items())}


def reward_work(processes: Sequence[Recorded], clock: RunClock) -> list[RewardWork]:
    """What processes did for others, by process and function."""
    return [
        RewardWork(index, function, calls, clock.at(one, starts // calls), total / 1e9, errors)
        for index, one in enumerate(processes)
        for function, calls, starts, total, errors in one.journal.elsewhere
    ]
