"""The OpenRLHF adapter: every hook point, and the releases of OpenRLHF that have it."""

from __future__ import annotations

from rlvr_probe.adapter import HookPoint
from rlvr_probe.adapter.named_calls import named_call
from rlvr_probe.releases import Dated, DatedAdapter, within
from rlvr_probe_openrlhf import agents, rollouts, rpc, samples, steps, verify, weights

__all__ = ["OTHERS", "OpenRLHFAdapter"]

_OLDEST = "0.9.1"
"""First release that is known."""

_GENERATOR = (
    *(rollouts.GENERATE, rollouts.COLLECT, rollouts.DISPATCH, rollouts.EVALUATE),
    samples.RESPONSE,
)

OTHERS = (verify.REQUEST, verify.BODY)
"""Of aiohttp, whose releases OpenRLHF's do not name."""

_LOGGING = [
    named_call(f"openrlhf.utils.logging_utils:{logger}Logger.{method}")
    for logger in ("Wandb", "Tensorboard")
    for method in ("log_train", "log_eval")
]

_IMPORTED = (
    steps.TRAINER,
    *steps.STAGES,
    *_LOGGING,
    *(rpc.GROUP, rpc.CALLER, rpc.CALLER_BATCH, rpc.OPTIMIZER),
    weights.ENGINES,
    *verify.EXECUTORS,
    *verify.VERIFICATION,
    *OTHERS,
)

_AGENT = "openrlhf.utils.agent"
_TRAINER = "openrlhf.trainer.ppo_trainer"
_ACTOR = "openrlhf.trainer.ray"


def _work(*names: str) -> list[HookPoint]:
    return [point for point in rpc.WORK if point.target in names]


_TRAINED = _work("fit", "save_checkpoint", "reload_states", "offload_states")
_POLICY = (*_TRAINED, *_work("broadcast_to_vllm"))
_SHARED = _work("execute_batch", "empty_cache")


class OpenRLHFAdapter(DatedAdapter):
    """OpenRLHF's PPO trainer through Ray, synchronous and asynchronous."""

    name = "openrlhf"
    distribution = "openrlhf"
    tested = ">=0.9.1,<0.12"
    imported = (
        *(Dated(point, _OLDEST) for point in _IMPORTED),
        *within("openrlhf.trainer.ppo_utils.experience_maker:", _GENERATOR, _OLDEST, "0.9.9"),
        *within("openrlhf.trainer.ppo_utils.samples_generator:", _GENERATOR, "0.9.9"),
    )
    methods = (
        *within(f"{_AGENT}:SingleTurnAgentExecutor.", (agents.EXECUTE,), _OLDEST),
        *within(f"{_AGENT}:MultiTurnAgentExecutor.", (agents.EXECUTE,), _OLDEST),
        *within(f"{_AGENT}:AgentInstanceBase.", (agents.STEP,), _OLDEST),
        *within(f"{_ACTOR}.launcher:BaseModelActor.", _SHARED, _OLDEST),
        *within(f"{_ACTOR}.ppo_actor:PolicyModelActor.", _POLICY, _OLDEST),
        *within(f"{_ACTOR}.ppo_critic:CriticModelActor.", _TRAINED, _OLDEST),
        *within(f"{_ACTOR}.vllm_engine:LLMRayActor.", weights.MOVES, _OLDEST, "0.10.2"),
        *within(f"{_ACTOR}.vllm_engine:RolloutRayActor.", weights.MOVES, "0.10.2"),
        *within(f"{_TRAINER}:BasePPOTrainer.", (steps.BEGIN, *steps.METHODS), _OLDEST),
        *within(f"{_TRAINER}:PPOTrainer.", (rollouts.EVALUATION,), _OLDEST),
    )
