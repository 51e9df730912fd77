"""The trainer of a process: an actor, which verl calls TaskRunner.

Timers, workers and batches exist in other processes as well, which have no trainer; what is hooked
there for the controller's sake is left alone.
"""

from __future__ import annotations

import weakref
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.adapter import HookPoint, Probe, ray_actors
from rlvr_probe.adapter import controller as kit
from rlvr_probe.reading import attribute, number, option, word
from rlvr_probe.releases import version_of, within
from rlvr_probe_verl.generations import Generation

__all__ = [
    "IN_RPC",
    "LEARNED",
    "OLDEST",
    "Controller",
    "config_of",
    "facts",
    "filters",
    "reward_function",
    "steps_begun",
    "verifier",
]

IN_RPC: ContextVar[bool] = ContextVar("rlvr_probe_verl_rpc", default=False)
"""Whether a worker group is being called, or a call of one is being done."""

OLDEST = "0.4.1"
"""First release of verl that is known."""

_GENERATIONS = 64
"""Most generations that are remembered; a recipe that filters makes a few for one step."""


@dataclass(slots=True)
class Controller(kit.Controller):
    """State of one trainer.

    Attributes:
        ended: Whether its last step was done.
        trained: Whether advantages were computed in the step, or a model was updated.
        timers: Timers that run, outermost first: what they are called, and what they write to.
        rollout: Span of the rollout stage that is open, 0 if none is.
        samples: Trajectories generated in it; None if that is unknown.
        scoring: Whether a reward manager is at work.
        baseline: Whether a baseline is generated and scored (ReMax), which nothing is trained on.
        generations: Those of the step, and of the evaluation, in work.
        padding: The batch that was filled up last, and by how many rows.
        order: The batch that was put in another order last, and which row each of its rows was.
        kept: Names of the prompts that passed a filter in this step; None if there was none.
        discarded: Names of those that were recorded not to have passed.
        chosen: Whether it is known what is trained on in it.
    """

    ended: bool = False
    trained: bool = False
    timers: list[tuple[str, int]] = field(default_factory=list)
    rollout: int = 0
    samples: int | None = None
    scoring: bool = False
    baseline: bool = False
    generations: list[Generation] = field(default_factory=list)
    padding: tuple[weakref.ref[Any] | None, int] = (None, 0)
    order: tuple[weakref.ref[Any] | None, list[int]] = (None, [])
    kept: set[str] | None = None
    discarded: set[str] = field(default_factory=set)
    chosen: bool = False

    def where(self) -> kit.Where:
        """Place of something that happens now."""
        if self.evaluation:
            return self.session or 0, self.step if self.counted else steps_begun(), "eval"
        return self.session or 0, steps_begun(), "train"

    @property
    def counted(self) -> bool:
        """Whether the next step is counted already, and has not started."""
        return not self.step_span and 0 < self.step < steps_begun()

    def begin_session(self, probe: Probe, resumed_step: int) -> None:
        """Record that the run of this process's trainer starts, unless it has.

        Args:
            probe: To record with.
            resumed_step: Steps that were done before.
        """
        again = self.ended and resumed_step < self.step
        if self.session is None or again:
            self.ended = False
            self.start_session(probe, facts(self.trainer()), resumed_step)

    def finish_session(self, probe: Probe, counted: int) -> None:
        """Record that the run is over if as many steps are counted as it is to have."""
        last = number(self.trainer(), "total_training_steps")
        if last is not None and counted >= last and not self.ended:
            self.ended = True
            self.end_session(probe, self.step)

    def generated_for(self, mode: str) -> list[Generation]:
        """Generations of the step, or of the evaluation."""
        return [generation for generation in self.generations if generation.mode == mode]

    def remember_padding(self, data: Any, rows: int) -> None:
        """``data`` has ``rows`` rows at its end that only fill it up."""
        self.padding = (weakref.ref(data), rows)

    def remember_order(self, data: Any, rows: list[int]) -> None:
        """Each row of ``data`` was another one before."""
        before = self.order_of(data)
        self.order = (weakref.ref(data), rows if before is None else [before[row] for row in rows])

    def order_of(self, data: Any) -> list[int] | None:
        """Which row each row of ``data`` was at first; None if it was never reordered."""
        batch, rows = self.order
        return rows if batch is not None and batch() is data else None

    def remember(self, generation: Generation) -> None:
        """Keep a generation until its step is over, or until there are too many of them."""
        self.generations.append(generation)
        del self.generations[:-_GENERATIONS]

    def forget(self, mode: str) -> None:
        """Forget the generations of a step or an evaluation that is over."""
        self.generations = [kept for kept in self.generations if kept.mode != mode]


def config_of() -> Any:
    """Settings of the trainer of this process."""
    return attribute(Controller.trainer(), "config")


def steps_begun() -> int:
    """Number of the step the trainer is in, from 1; 0 before the first."""
    # The count is that of the step in work, not of steps done, from the start of the loop on.
    return number(Controller.trainer(), "global_steps") or 0


# ---------------------------------------------------------------- facts of a run


def facts(owner: Any) -> dict[str, Any]:
    """Attributes of ``names.SESSION`` that a trainer knows, without those of the session itself."""
    config = attribute(owner, "config")

    def count(path: str) -> int | None:
        return number(option(config, path))

    rollout = option(config, "actor_rollout_ref.rollout")
    estimator = word(option(config, "algorithm.adv_estimator"))
    reward = reward_function(config)
    return {
        "framework": "verl",
        "framework_version": version_of("verl"),
        "algorithm": None if estimator is None else estimator.lower(),
        "rollout_tp": _tensor_parallel(rollout),
        "engine": _engine(rollout),
        "group_size": number(option(rollout, "n")),
        "group_size_eval": number(option(rollout, "val_kwargs.n")),
        "max_prompt_tokens": count("data.max_prompt_length"),
        "max_response_tokens": count("data.max_response_length"),
        "filters": filters(config),
        "reward_functions": None if reward is None else [reward],
        **ray_actors.facts(
            nodes=count("trainer.nnodes"),
            per_node=count("trainer.n_gpus_per_node"),
            epochs=count("actor_rollout_ref.actor.ppo_epochs"),
            prompts=count("actor_rollout_ref.actor.ppo_mini_batch_size"),
        ),
    }


def filters(config: Any) -> int | None:
    """1 if a filter is to drop groups, 0 if not; None if unknown."""
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


# ---------------------------------------------------------------- trainers as they are made


_LEARN = (HookPoint("__init__", after=Controller.learn),)
_ONE_STEP_OFF = "verl.experimental.one_step_off_policy.ray_trainer:OneStepOffRayTrainer."

LEARNED = (
    *within(_ONE_STEP_OFF, _LEARN, "0.8"),  # does not call the constructor of its base
    *within("verl.trainer.main_ppo_sync:PPOTrainer.", _LEARN, "0.8", "0.9"),  # what became V1
    *within("verl.trainer.ppo.v1.trainer_base:PPOTrainer.", _LEARN, "0.9"),
)
"""Hooked in the controller when their modules are imported; others are in ``rewards``."""
