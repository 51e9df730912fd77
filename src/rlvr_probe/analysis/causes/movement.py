"""Moving weights to the rollout engines, while all GPUs wait.

How many bytes move is not recorded, so how long it should take is not known. Within a run there is
one thing to compare it with: a checkpoint writes the same weights, with the optimizer's, to a disk.
Moving them from GPU to GPU should take a small part of that. Where no checkpoint was written, the
share of the run is all there is. What it costs is what it takes longer than is usual beside either.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.causes.cause import Cause, Saving
from rlvr_probe.analysis.causes.finding import Run
from rlvr_probe.analysis.causes.thresholds import (
    SYNC_OF_CHECKPOINT,
    SYNC_SHARE,
    SYNC_SHARE_ASYNCHRONOUS,
    SYNC_USUAL,
    SYNC_USUAL_OF_CHECKPOINT,
)
from rlvr_probe.analysis.causes.words import seconds, times
from rlvr_probe.analysis.results import Answer
from rlvr_probe.analysis.statements import statements

__all__ = ["moved_by_step", "replay_weights", "slow_weight_sync"]

_SQL: Final = statements(__name__)


def moved_by_step(run: Run, what: str) -> list[tuple[int, float]]:
    """``step_id`` and ns of moving weights (``weight_sync``), or of a ``checkpoint``."""
    return [(step, ns) for step, told, ns in run.ask(_SQL["moved"]).rows if told == what]


def replay_weights(run: Run, usual_ns: float) -> Answer:
    """Wall time of each step, ns, that weights which move in that time would save."""
    return run.ask(_SQL["left"], usual=float(usual_ns))


def slow_weight_sync(run: Run) -> list[Cause]:
    """Weights that take long to move, by the time of a checkpoint or by their share of the run."""
    moved = sorted(ns for _, ns in moved_by_step(run, "weight_sync"))
    saved = sorted(ns for _, ns in moved_by_step(run, "checkpoint"))
    if not moved:
        return []
    typical = moved[len(moved) // 2]
    share = sum(moved) / run.extent.wall_ns
    [beside] = run.ask(_SQL["asynchronous"]).row
    limit = SYNC_SHARE_ASYNCHRONOUS if beside else SYNC_SHARE
    title = f"moving weights takes {seconds(typical)} a step"
    if saved:
        checkpoint = saved[len(saved) // 2]
        if typical < SYNC_OF_CHECKPOINT * checkpoint:
            return []
        title += f", {times(typical / checkpoint)} the time of a checkpoint"
        usual = SYNC_USUAL_OF_CHECKPOINT * checkpoint
    elif share < limit:
        return []
    else:
        usual = SYNC_USUAL * run.extent.wall_ns / run.extent.steps
    answer = replay_weights(run, usual)
    saving = Saving.of(answer.rows)
    if run.is_noise(saving):
        return []
    return [run.cause("slow_weight_sync", saving, title, answer)]
