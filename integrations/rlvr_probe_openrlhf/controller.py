"""The trainer of a process: the actor ``PPOTrainer``, or ``TrainingActor``.

Beside the latter another process, ``GenerateSamplesActor``, generates. That one has no trainer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlvr_probe.adapter import Probe, ray_actors
from rlvr_probe.adapter import controller as kit
from rlvr_probe.adapter.spans import Open
from rlvr_probe.reading import attribute, number, option, word
from rlvr_probe.releases import version_of

__all__ = ["Controller", "facts", "filters", "reward_function"]


@dataclass(slots=True)
class Controller(kit.Controller):
    """State of one trainer.

    Attributes:
        done: Steps that are done, by OpenRLHF's own count.
        episodes: Passes over the prompts that are left; None if that is unknown.
        maker: The stage that the maker of experience is in.
        checkpoint: Span of the checkpoint that is written, 0 if none is.
        batch: Rollout span of the trajectories of the step, 0 where another process generates.
        rows: How many they are, 0 once their rewards were recorded.
        taken: Batches that were taken from the queue.
        synced: How often weights were moved to the engines.
    """

    done: int = 0
    episodes: int | None = None
    maker: Open | None = None
    checkpoint: int = 0
    batch: int = 0
    rows: int = 0
    taken: int = 0
    synced: int = 0

    def where(self) -> kit.Where:
        """Place of something that happens now."""
        mode = "eval" if self.evaluation else "train"
        return self.session or 0, self.done + (1 if self.step_span else 0), mode

    def begin_session(self, probe: Probe) -> None:
        """Record that the run of this process's trainer starts, unless it has."""
        if self.session is None:
            self.start_session(probe, facts(self.trainer()), self.done)

    def finish_session(self, probe: Probe) -> None:
        """Record that the run of this process's trainer is over, if it is."""
        if self.session is not None and not self.step_span and self.episodes == 0:
            self.end_session(probe, self.done)

    def begin_step(self, probe: Probe) -> None:
        """Start the next step, unless one is open."""
        if not self.step_span:
            self.open_step(probe, self.done + 1)

    def finish_step(self, probe: Probe, error: str | None) -> None:
        """End the step, which is done unless it failed."""
        self.step = self.done + 1
        if error is None:
            self.done += 1
        self.close_step(probe, error)


def facts(owner: Any) -> dict[str, Any]:
    """Attributes of ``names.SESSION`` that a trainer knows, without those of the session itself."""
    args = attribute(owner, "strategy", "args")
    args = attribute(owner, "args") if args is None else args

    def count(*paths: str) -> int | None:
        return number(option(args, *paths))

    group = count("rollout.n_samples_per_prompt", "n_samples_per_prompt")
    update = count("train.batch_size", "train_batch_size")
    prompt, response = _caps(args)
    return {
        "framework": "openrlhf",
        "framework_version": version_of("openrlhf"),
        "algorithm": word(option(args, "algo.advantage.estimator", "advantage_estimator")),
        "rollout_tp": count("vllm.tensor_parallel_size", "vllm_tensor_parallel_size"),
        "engine": "vllm-async",
        "group_size": group,
        "group_size_eval": count("eval.n_samples_per_prompt", "eval_n_samples_per_prompt"),
        "max_prompt_tokens": prompt,
        "max_response_tokens": response,
        "filters": filters(args),
        "reward_functions": [reward_function(args)],
        **ray_actors.facts(
            nodes=count("actor.num_nodes", "actor_num_nodes"),
            per_node=count("actor.num_gpus_per_node", "actor_num_gpus_per_node"),
            epochs=count("train.max_epochs", "max_epochs"),
            prompts=update // group if update and group and update % group == 0 else None,
        ),
    }


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
    """1 if a filter is to drop groups, 0 if not; None if unknown."""
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
