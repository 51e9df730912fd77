"""Every hook point, and the releases of verl that have it."""

from __future__ import annotations

from rlvr_probe.adapter import HookPoint
from rlvr_probe_verl import filtering, rewards, rollouts, rpc, session, stages
from rlvr_probe_verl.releases import Dated, Release

__all__ = ["DATED", "points"]

DATED = (
    Dated(rewards.TRAINER),
    Dated(session.ONE_STEP_OFF, since="0.8"),
    Dated(session.SYNC_V1, since="0.8", until="0.9"),
    Dated(session.TRAINER_V1, since="0.9"),
    Dated(stages.TIMER_0_4, until="0.5"),
    Dated(stages.NVTX_TIMER_0_4, until="0.5"),
    Dated(stages.TIMER, since="0.5"),
    Dated(stages.NVTX_TIMER, since="0.5"),
    Dated(stages.MSTX_TIMER, since="0.5"),
    Dated(stages.VALIDATE),
    Dated(stages.VALIDATE_SYNC_V1, since="0.8", until="0.9"),
    Dated(stages.VALIDATE_V1, since="0.9"),
    Dated(rpc.CALLER),
    Dated(rpc.WORKER),
    Dated(rollouts.MANAGER, since="0.5"),
    Dated(rollouts.PADDING),
    Dated(rewards.REORDER),
    Dated(filtering.SELECT),
    Dated(filtering.ADVANTAGES),
)


def points(at: Release) -> tuple[HookPoint, ...]:
    """Hook points of release ``at``; each is set when its module is imported."""
    return tuple(dated.point for dated in DATED if dated.holds(at))
