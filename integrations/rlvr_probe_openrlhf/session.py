"""Trainers as they are made, and the facts about a training that begins."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Any

from rlvr_probe.adapter import Probe
from rlvr_probe.model.names import SESSION, SESSION_END
from rlvr_probe.reading import attribute, foreign_ids, number, word
from rlvr_probe_openrlhf.controller import Controller, trainer
from rlvr_probe_openrlhf.reading import option

__all__ = ["begin_session", "end_session", "facts", "filters", "reward_function"]

_sessions = 0
"""Trainings that this process began."""


def begin_session(probe: Probe, controller: Controller) -> None:
    """Tell that the training of this process's trainer begins, unless it has begun."""
    global _sessions
    if controller.session is not None:
        return
    controller.session = _sessions
    _sessions += 1
    values = {"session": controller.session, **facts(trainer()), "resumed_step": controller.done}
    probe.emit(SESSION, values)


def end_session(probe: Probe, controller: Controller) -> None:
    """Tell that the training of this process's trainer is over, unless it is not."""
    if controller.session is not None and not controller.step_span and controller.episodes == 0:
        probe.emit(SESSION_END, {"session": controller.session, "step": controller.done})


def facts(owner: Any) -> dict[str, Any]:
    """Attributes of ``names.SESSION`` that a trainer knows, without those of the session itself."""
    args = attribute(owner, "strategy", "args")
    args = attribute(owner, "args") if args is None else args
    nodes = number(option(args, "actor.num_nodes", "actor_num_nodes"))
    per_node = number(option(args, "actor.num_gpus_per_node", "actor_num_gpus_per_node"))
    group = number(option(args, "rollout.n_samples_per_prompt", "n_samples_per_prompt"))
    epochs = number(option(args, "train.max_epochs", "max_epochs"))
    update = number(option(args, "train.batch_size", "train_batch_size"))
    prompt, response = _caps(args)
    # A step goes over its batch in mini-batches, and updates the model after each.
    updates_known = bool(epochs and update and group and update % group == 0)
    return {
        "framework": "openrlhf",
        "framework_version": _version(),
        "algorithm": word(option(args, "algo.advantage.estimator", "advantage_estimator")),
        "rank": 0,
        "world_size": 1,
        "accelerators": nodes * per_node if nodes and per_node else None,
        "rollout_tp": number(
            option(args, "vllm.tensor_parallel_size", "vllm_tensor_parallel_size")
        ),
        "engine": "vllm-async",
        "group_size": group,
        "group_size_eval": number(
            option(args, "eval.n_samples_per_prompt", "eval_n_samples_per_prompt")
        ),
        "max_prompt_tokens": prompt,
        "max_response_tokens": response,
        "steps_per_generation": 1,
        "iterations": epochs if updates_known else None,
        "accumulation": epochs if updates_known else 1,
        "prompts_per_update": update // group if updates_known and update and group else None,
        "filters": filters(args),
        "reward_functions": [reward_function(args)],
        "ids": foreign_ids(sys.modules),
    }


def _version() -> str | None:
    try:
        return metadata.version("openrlhf")
    except metadata.PackageNotFoundError:  # a source checkout on the path
        return None


def _caps(args: Any) -> tuple[int | None, int | None]:
    """Tokens that a prompt and a response may have.

    OpenRLHF caps both together; before 0.10 by the sum of two caps.
    """
    prompt = number(option(args, "prompt_max_len"))
    response = number(option(args, "rollout.max_new_tokens", "max_new_tokens", "generate_max_len"))
    both = number(option(args, "data.max_len", "max_len"))
    if prompt is not None and response is not None:
        both = prompt + response
    if both is None:
        return prompt, response
    prompt = prompt or both - (response or 1)
    # Each turn of an agent may fill what there is, and so may a response without a cap of its own.
    several = option(args, "train.agent_func_path", "agent_func_path")
    return prompt, both if several or response is None else response


def filters(args: Any) -> int | None:
    """1 if groups are to be left out of the training by a filter, 0 if not; None if unknown."""
    enabled = option(args, "algo.dynamic_filtering_enable", "dynamic_filtering")
    return int(enabled) if isinstance(enabled, bool) else None


def reward_function(args: Any) -> str:
    """Name of the one thing that OpenRLHF's rewards come from."""
    if option(args, "train.agent_func_path", "agent_func_path"):
        return "agent"
    url = option(args, "reward.remote_url", "remote_rm_url")
    first = url[0] if isinstance(url, (list, tuple)) and url else url
    if not isinstance(first, str):
        return "reward_model"
    return "reward_func" if first.endswith(".py") else "reward_service"
