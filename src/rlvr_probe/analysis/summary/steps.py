"""Steps one by one, and how long their stages took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlvr_probe.analysis.summary.job import selection
from rlvr_probe.analysis.summary.lengths import Lengths, counts
from rlvr_probe.model import names
from rlvr_probe.model.trace import Step, Trace

__all__ = ["stages", "step_entry"]


def step_entry(step: Step, lengths: Lengths) -> dict[str, Any]:
    """One step, with the lengths of those of its trajectories that are counted."""
    return {
        "attempt": step.attempt,
        "session": step.session,
        "step": step.number,
        "done": step.done,
        "ranks_done": step.ranks_done,
        "ranks": step.ranks,
        **counts(step.batches),
        "lengths": lengths.figures(),
        "policy_version": next((batch.policy_version for batch in step.batches), None),
        "selection": selection(step.batches) if step.batches else None,
        # Seconds of the slowest rank.
        "stage_s": {
            stage: max(by_rank.values())
            for stage in (names.STEP.name, *names.STAGES)
            if (by_rank := step.stage_seconds(stage))
        },
    }


def stages(trace: Trace, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Per stage: seconds per step in which it was seen, mean of the ranks and slowest rank."""
    found = list[dict[str, Any]]()
    whole = 0.0
    for stage in (names.STEP.name, *names.STAGES):
        by_rank = dict[int | None, float]()
        seen = 0
        total = 0.0
        within = False
        for step in steps:
            if step.started and not step.done:
                continue
            seconds = step.stage_seconds(stage)
            seen += bool(seconds)
            within = within or step.within(stage)
            # The mean first: ranks of two attempts may differ in number.
            total += sum(seconds.values()) / len(seconds) if seconds else 0.0
            for process, value in seconds.items():
                rank = trace.processes[process].rank
                by_rank[rank] = by_rank.get(rank, 0.0) + value
        if not seen:
            continue
        slowest = max(by_rank, key=lambda rank: by_rank[rank])
        if stage == names.STEP.name:
            whole = total
        found.append(
            {
                "stage": stage,
                "steps": seen,
                "mean_s": total / seen,
                "max_s": by_rank[slowest] / seen,
                "slowest_rank": slowest,
                "share": total / whole if whole and within else None,
            }
        )
    return found
