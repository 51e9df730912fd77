"""Trainers as they are made, and the facts about a training that begins."""

from __future__ import annotations

import sys
from typing import Any

from rlvr_probe.adapter import HookPoint, Probe
from rlvr_probe.model.names import SESSION, SESSION_END
from rlvr_probe.reading import attribute, foreign_ids, number, word
from rlvr_probe_verl.controller import Controller, learn, trainer
from rlvr_probe_verl.reading import option

__all__ = [
    "ONE_STEP_OFF",
    "SYNC_V1",
    "TRAINER_V1",
    "begin_session",
    "end_session",
    "facts",
    "filters",
    "reward_function",
    "verifier",
]

_begun: list[int] = []
"""Steps that were done when each training of this process began."""


def begin_session(probe: Probe, controller: Controller, resumed_step: int) -> None:
    """Tell that the training of this process's trainer begins, unless it has begun.

    Args:
        probe: To record with.
        controller: State of the trainer.
        resumed_step: Steps that were done before.
    """
    again = controller.ended and resumed_step < controller.step
    if controller.session is not None and not again:
        return
    _begun.append(resumed_step)
    # One that is resumed continues the training that the process was in.
    controller.session = max(0, _begun.count(0) - 1)
    controller.ended = False
    probe.emit(
        SESSION,
        {"session": controller.session, **facts(trainer()), "resumed_step": resumed_step},
    )


def end_session(probe: Probe, controller: Controller, counted: int) -> None:
    """Tell that the training is over if as many steps are counted as it is to have."""
    last = number(trainer(), "total_training_steps")
    if last is not None and counted >= last and not controller.ended:
        controller.ended = True
        probe.emit(SESSION_END, {"session": controller.session, "step": controller.step})


def facts(owner: Any) -> dict[str, Any]:
    """Attributes of ``names.SESSION`` that a trainer knows, without those of the session itself."""
    config = attribute(owner, "config")
    rollout = option(config, "actor_rollout_ref.rollout")
    nodes = number(option(config, "trainer.nnodes"))
    per_node = number(option(config, "trainer.n_gpus_per_node"))
    estimator = word(option(config, "algorithm.adv_estimator"))
    reward = reward_function(config)
    epochs, prompts = (
        number(option(config, f"actor_rollout_ref.actor.{name}"))
        for name in ("ppo_epochs", "ppo_mini_batch_size")
    )
    # A step goes over its batch in mini-batches, and updates the model after each.
    updates_known = bool(epochs and prompts)
    return {
        "framework": "verl",
        "framework_version": word(attribute(sys.modules.get("verl"), "__version__")),
        "algorithm": None if estimator is None else estimator.lower(),
        "rank": 0,
        "world_size": 1,
        "accelerators": nodes * per_node if nodes and per_node else None,
        "rollout_tp": _tensor_parallel(rollout),
        "engine": _engine(rollout),
        "group_size": number(option(rollout, "n")),
        "group_size_eval": number(option(rollout, "val_kwargs.n")),
        "max_prompt_tokens": number(option(config, "data.max_prompt_length")),
        "max_response_tokens": number(option(config, "data.max_response_length")),
        "steps_per_generation": 1,
        "iterations": epochs if updates_known else None,
        "accumulation": epochs if updates_known else 1,
        "prompts_per_update": prompts if updates_known else None,
        "filters": filters(config),
        "reward_functions": None if reward is None else [reward],
        "ids": foreign_ids(sys.modules),
    }


def filters(config: Any) -> int | None:
    """1 if groups are to be left out of the training by a filter, 0 if not; None if unknown."""
    enabled = option(config, "algorithm.filter_groups.enable")
    return int(enabled) if isinstance(enabled, bool) else None


def reward_function(config: Any) -> str | None:
    """Name of the one function, or model, that verl's rewards come from."""
    for section in ("reward.reward_model", "reward_model"):  # since 0.7, before
        if option(config, f"{section}.enable") is True:
            return "reward_model"
    return verifier(config)


def verifier(config: Any) -> str | None:
    """Name of the function that verl scores with where no model does."""
    for section in ("reward.custom_reward_function", "custom_reward_function"):
        # It has a name by default, and is used if it has a path.
        if option(config, f"{section}.path"):
            return word(option(config, f"{section}.name"))
    return None if config is None else "default_compute_score"


def _tensor_parallel(rollout: Any) -> int | None:
    # Below 0.7 the training ranks can generate themselves, and there is no engine.
    if option(rollout, "name") == "hf":
        return 1
    return number(option(rollout, "tensor_model_parallel_size"))


def _engine(rollout: Any) -> str | None:
    name, mode = word(option(rollout, "name")), word(option(rollout, "mode"))
    return f"{name}-async" if name and mode == "async" else name


ONE_STEP_OFF = HookPoint(
    "verl.experimental.one_step_off_policy.ray_trainer:OneStepOffRayTrainer.__init__", after=learn
)
"""Does not call the constructor of its base. verl >= 0.8."""

SYNC_V1 = HookPoint("verl.trainer.main_ppo_sync:PPOTrainer.__init__", after=learn)
"""What became the V1 trainer. verl 0.8."""

TRAINER_V1 = HookPoint("verl.trainer.ppo.v1.trainer_base:PPOTrainer.__init__", after=learn)
"""verl >= 0.9."""
