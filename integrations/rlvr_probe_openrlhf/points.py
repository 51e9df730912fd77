"""Every hook point, and the releases of OpenRLHF that have it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rlvr_probe.adapter import HookPoint
from rlvr_probe.releases import Dated, Release, points_of
from rlvr_probe_openrlhf import (
    agents,
    generation,
    ranks,
    rollouts,
    rpc,
    steps,
    training,
    verify,
    weights,
)

__all__ = ["DATED", "METHODS", "OTHERS", "looked_up", "points"]

_OLDEST = "0.9.1"
"""First release that is known."""

_GENERATOR = (rollouts.GENERATE, rollouts.DISPATCH, rollouts.EVALUATE, generation.RESPONSE)
_BEFORE_0_9_9 = "openrlhf.trainer.ppo_utils.experience_maker"
_SINCE_0_9_9 = "openrlhf.trainer.ppo_utils.samples_generator"


def _within(module: str, point: HookPoint) -> HookPoint:
    return replace(point, target=f"{module}:{point.target}")


DATED = (
    *(
        Dated(point, _OLDEST)
        for point in (
            training.TRAINER,
            *steps.STAGES,
            rpc.GROUP,
            rpc.CALLER,
            rpc.CALLER_BATCH,
            weights.ENGINES,
            ranks.OPTIMIZER,
            *agents.EXECUTORS,
            *verify.VERIFICATION,
        )
    ),
    *(Dated(_within(_BEFORE_0_9_9, point), _OLDEST, "0.9.9") for point in _GENERATOR),
    *(Dated(_within(_SINCE_0_9_9, point), "0.9.9") for point in _GENERATOR),
)
"""Hooked when their module is imported."""

OTHERS = (verify.REQUEST, verify.BODY)
"""Of aiohttp, whose releases OpenRLHF's do not name."""

_AGENT = "openrlhf.utils.agent"
_TRAINER = "openrlhf.trainer.ppo_trainer"
_ACTOR = "openrlhf.trainer.ray"


def _methods(owner: str, given: Iterable[HookPoint], *dates: str) -> tuple[Dated, ...]:
    named = (replace(point, target=f"{owner}.{point.target}") for point in given)
    return tuple(Dated(point, *(dates or (_OLDEST,))) for point in named)


_WORK = {point.target: point for point in rpc.WORK}
_TRAINED = [_WORK[name] for name in ("fit", "save_checkpoint", "reload_states", "offload_states")]

METHODS = (
    *_methods(f"{_AGENT}:SingleTurnAgentExecutor", (agents.EXECUTE,)),
    *_methods(f"{_AGENT}:MultiTurnAgentExecutor", (agents.EXECUTE,)),
    *_methods(f"{_AGENT}:AgentInstanceBase", (agents.STEP,)),
    *_methods(
        f"{_ACTOR}.launcher:BaseModelActor",
        [_WORK[name] for name in ("execute_batch", "empty_cache")],
    ),
    *_methods(f"{_ACTOR}.ppo_actor:PolicyModelActor", (*_TRAINED, _WORK["broadcast_to_vllm"])),
    *_methods(f"{_ACTOR}.ppo_critic:CriticModelActor", _TRAINED),
    *_methods(f"{_ACTOR}.vllm_engine:LLMRayActor", weights.MOVES, _OLDEST, "0.10.2"),
    *_methods(f"{_ACTOR}.vllm_engine:RolloutRayActor", weights.MOVES, "0.10.2"),
    *_methods(f"{_TRAINER}:BasePPOTrainer", (training.BEGIN, *steps.METHODS)),
    *_methods(f"{_TRAINER}:PPOTrainer", (rollouts.EVALUATION,)),
)
"""Hooked on the classes of objects that are made: these are users' own, or Ray's before they can be
hooked. Named here on those of OpenRLHF."""


def points(at: Release) -> tuple[HookPoint, ...]:
    """Hook points of release ``at``; each is set when its module is imported."""
    return (*points_of(DATED, at), *OTHERS)


def looked_up(at: Release) -> tuple[HookPoint, ...]:
    """The methods of release ``at``, named on OpenRLHF's own classes."""
    return points_of(METHODS, at)
