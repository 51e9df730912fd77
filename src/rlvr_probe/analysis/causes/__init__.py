"""From lost GPU time backwards to what it was lost for: a ranked list of causes.

A step waits for the last rank, that for its last call, that for its last trajectory, and that for a
turn, a tool or a reward function. Each kind of cause is looked for where it would show, and what it
costs is replayed: the same durations, but for the one in question, and the last looked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rlvr_probe.analysis.causes.builder import Run
from rlvr_probe.analysis.causes.cause import KINDS, Cause, Saving
from rlvr_probe.analysis.causes.ranks import clock_skew, late_ranks, slow_ranks
from rlvr_probe.analysis.causes.regressions import grown
from rlvr_probe.analysis.causes.slow_calls import serial_rewards, slow_tools
from rlvr_probe.analysis.causes.slow_stages import restarts, slow_stages
from rlvr_probe.analysis.causes.stragglers_and_filters import aggressive_filter, stragglers
from rlvr_probe.analysis.causes.unfinished import unfinished
from rlvr_probe.analysis.causes.weights_and_queues import queues, slow_weight_sync
from rlvr_probe.analysis.ledger import find_extent, make_ledger
from rlvr_probe.recording.tables import Tables

__all__ = ["KINDS", "Cause", "Saving", "find_causes"]


def _ranks(run: Run) -> list[Cause]:
    """A rank that is slow in everything is not named for each part again."""
    slow = slow_ranks(run)
    # Not by rank: each group has its own.
    named = [cause.evidence["process"] for cause in slow]
    return slow + [cause for cause in late_ranks(run) if cause.evidence["process"] not in named]


_FINDERS: Final[tuple[Callable[[Run], list[Cause]], ...]] = (
    _ranks,
    stragglers,
    serial_rewards,
    slow_tools,
    slow_weight_sync,
    aggressive_filter,
    queues,
    clock_skew,
    unfinished,
)

_SYMPTOMS: Final = {
    "waiting_rollout": (
        "slow_data",
        "slow_rollout",
        "slow_update",
        "slow_checkpoint",
        "slow_between_steps",
        "slow_host",
        "warm_up",
    ),
    "starving_trainer": ("slow_data", "slow_rollout", "slow_reward", "slow_tool", "slow_host"),
}
"""Kinds that wait in an asynchronous run for what has a cause of its own: that has grown."""


def _is_symptom(cause: Cause, causes: Sequence[Cause]) -> bool:
    """Whether others explain half of it, or more."""
    kinds = _SYMPTOMS.get(cause.kind, ())
    explained = sum(other.gpu_s for other in causes if other.kind in kinds)
    return bool(kinds) and explained >= cause.gpu_s / 2


def find_causes(tables: Tables) -> list[Cause]:
    """What made GPUs wait, most expensive first; nothing that is below noise.

    Args:
        tables: Of a recording. Of a source without times of its steps there are no causes.
    """
    make_ledger(tables)
    extent = find_extent(tables)
    if extent is None or not extent.wall_ns:
        return []
    run = Run.of(tables, extent)
    causes = [cause for find in _FINDERS for cause in find(run)]
    past = grown(run)
    queued = sum(cause.gpu_s for cause in causes if cause.kind == "serial_reward")
    past = [cause for cause in past if cause.kind != "slow_reward" or cause.gpu_s > queued]
    if any(cause.kind == "slow_reward" for cause in past):
        causes = [cause for cause in causes if cause.kind != "serial_reward"]
    # What a thing was in the same run says more than what others of its kind are.
    better = [(cause.kind, cause.where) for cause in past]
    causes = [*past, *(cause for cause in causes if (cause.kind, cause.where) not in better)]
    causes += [*slow_stages(run), *restarts(run)]
    causes = [cause for cause in causes if not _is_symptom(cause, causes)]

    def excess(cause: Cause) -> float:
        return cause.share - run.allowed.get(cause.kind, 0.0)

    return sorted(causes, key=lambda cause: (cause.natural, -excess(cause), -cause.gpu_s))
