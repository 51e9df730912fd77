"""What the adapter remembers about one trainer between its hook points, and facts of its run."""

from __future__ import annotations

import re
import sys
import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.adapter import Call, Probe
from rlvr_probe.adapter.controller import Controller, Where, state_of
from rlvr_probe.adapter.user_functions import Scoring, Swapped
from rlvr_probe.reading import attribute, foreign_ids, number, word
from rlvr_probe.releases import Release, release, version_of
from rlvr_probe_trl.reading import is_module

__all__ = ["BATCH", "Batch", "Training"]
__all__ += ["algorithm", "begin_step", "facts", "installed", "place_done", "read_done"]
__all__ += ["read_place", "read_step", "reward_names", "step_done", "step_next", "step_now"]
__all__ += ["stepping", "training_of"]

_ABANDONED = "Abandoned"
_TRAINER = re.compile(r"_?(?:Unsloth)?(\w+?)Trainer")


def installed() -> Release:
    """The release of TRL that runs in this process."""
    return release(version_of("trl"))


@dataclass(slots=True)
class Batch:
    """One experience batch while it is made.

    Attributes:
        trainer: Who makes it. Held only until the batch is done.
        span: The experience span, which joins lengths and rewards.
        where: Its place in the run, read once: TRL's continuous batching leaves the model in
            training mode after an evaluation batch.
        samples: Completions that this rank makes for it.
        rollout: Its rollout span.
        rollout_open: Whether that is to be ended by hand: TRL below 0.24.
        ordinal: Position among the batches of its place; None before it is drawn.
        prompts_seen: Whether its prompts passed on their way to the accelerator: TRL below 0.24.
        prompt_tokens: Their lengths, which nothing returns there; None if they were unreadable.
        decoded: Length of each completion and whether it ended by itself: TRL below 0.19.
        recorded: Whether its lengths were recorded.
        sources: Where the prompt of each row is from; None if that is not asked for.
        reward: Its reward span.
        reward_open: Whether that is to be ended by hand: TRL below 0.24.
        scoring: Its reward functions while they run.
        swapped: Where wrappers are in their place.
        old_seen: Whether the log-probabilities of the sampling policy were computed.
        function_end_ns: When the last reward model returned.
        rewards_end_ns: When the rewards of all ranks were there.
        models: Position of each reward model, by the name under which TRL times it.
        model_spans: Open spans of reward models, by the same name.
    """

    trainer: Any
    span: int
    where: Where
    samples: int | None = None
    rollout: int = 0
    rollout_open: bool = False
    ordinal: int | None = None
    prompts_seen: bool = False
    prompt_tokens: list[int] | None = None
    decoded: list[tuple[int, int]] = field(default_factory=list)
    recorded: bool = False
    sources: list[str | None] | None = None
    reward: int = 0
    reward_open: bool = False
    scoring: Scoring | None = None
    swapped: Swapped = field(default_factory=Swapped)
    old_seen: bool = False
    function_end_ns: int = 0
    rewards_end_ns: int = 0
    models: dict[str, int] = field(default_factory=dict)
    model_spans: dict[str, int] = field(default_factory=dict)


BATCH: ContextVar[Batch | None] = ContextVar("rlvr_probe_trl_batch", default=None)
"""The batch whose rewards are computed: async reward functions run on another thread, in a copy of
this context."""


@dataclass(slots=True)
class Training(Controller):
    """State of one trainer.

    Attributes:
        in_training_step: Between start and end of a micro step.
        update_span: Policy update of the open micro step, 0 before its inputs are ready.
        optimizer_spans: Open spans of an optimizer step, outermost first.
        optimizer_depth: Optimizer steps entered and not left.
        evaluating: Inside an evaluation.
        batch: The batch that is being made.
        stops: Token ids that end a completion; None before they are known. Asking a tokenizer for
            one takes longer than all other counting.
    """

    in_training_step: bool = False
    update_span: int = 0
    optimizer_spans: tuple[int, ...] = ()
    optimizer_depth: int = 0
    evaluating: bool = False
    batch: Batch | None = None
    stops: frozenset[int] | None = None

    def where(self, trainer: Any, mode: str | None = None) -> Where:
        """Place of something that happens now: the step in work, or the last one if evaluating."""
        if mode is None:
            mode = "eval" if self.evaluating or not trainer.model.training else "train"
        done: int = trainer.state.global_step
        session = self.sessions().number if self.session is None else self.session
        return session, done + (mode == "train"), mode

    def place(self, trainer: Any) -> Where:
        """Place of the batch in work, or of what happens now."""
        return self.where(trainer) if self.batch is None else self.batch.where

    def finish(self, probe: Probe, error: str | None = _ABANDONED) -> None:
        """End the step, and what is open inside of it: an exception or an early stop left it."""
        if stepping() is self:
            del _stepping[threading.get_ident()]
        for span in reversed(self.optimizer_spans):
            probe.end(span, self.at(), _ABANDONED)
        if self.update_span:
            probe.end(self.update_span, {**self.at(), "mode": "train"}, _ABANDONED)
        self.close_step(probe, error)
        self.optimizer_spans, self.optimizer_depth = (), 0
        self.update_span, self.in_training_step = 0, False


_stepping: dict[int, Training] = {}
"""The training whose step is open, by thread."""


def begin_step(training: Training) -> None:
    """This thread is in a step of ``training`` from here on."""
    _stepping[threading.get_ident()] = training


def stepping() -> Training | None:
    """The training whose step is open on this thread."""
    return _stepping.get(threading.get_ident())


def training_of(call: Call) -> Training:
    """The state of the trainer whose method is called."""
    return state_of(call.probe, call.args[0], Training)


# ---------------------------------------------------------------- where a call is in its run


def read_place(call: Call) -> tuple[Any, ...]:
    """Session, step and mode of the batch in work."""
    return training_of(call).place(call.args[0])


def read_step(call: Call) -> tuple[Any, ...]:
    """Those of the step in work, which may still be in evaluation mode."""
    return training_of(call).where(call.args[0], "train")


def place_done(training: Training, trainer: Any) -> Where:
    """Session, step and mode of the step that is done."""
    session, step, _ = training.where(trainer, "eval")
    return session, step, "train"


def read_done(call: Call) -> tuple[Any, ...]:
    """Those of the step that is done."""
    return place_done(training_of(call), call.args[0])


def step_now(call: Call) -> int | None:
    """The step in work."""
    return training_of(call).where(call.args[0])[1]


def step_next(call: Call) -> int | None:
    """The step in work, in evaluation mode too."""
    return training_of(call).where(call.args[0], "train")[1]


def step_done(call: Call) -> int | None:
    """The step that is done."""
    return training_of(call).where(call.args[0], "eval")[1]


# ---------------------------------------------------------------- facts of a run


def facts(trainer: Any) -> dict[str, Any]:
    """Attributes of ``names.SESSION`` that a trainer knows, without those of the session itself."""
    args = trainer.args
    micro = number(args, "per_device_train_batch_size")
    accumulation = number(args, "gradient_accumulation_steps")
    # TRL 0.17 generates for a whole trainer step.
    per_batch = number(args, "steps_per_generation") or accumulation
    engine = _engine(trainer)
    return {
        "framework": "trl",
        "framework_version": version_of("trl"),
        "algorithm": algorithm(type(trainer)),
        "rank": number(trainer, "accelerator", "process_index"),
        "world_size": number(trainer, "accelerator", "num_processes"),
        "rollout_tp": _rollout_tp(args, engine),
        "engine": engine,
        "group_size": number(trainer, "num_generations"),
        "group_size_eval": number(trainer, "num_generations_eval"),
        "batch_per_rank": micro * per_batch if micro and per_batch else None,
        "max_prompt_tokens": number(args, "max_prompt_length"),
        "max_response_tokens": number(trainer, "max_completion_length"),
        "steps_per_generation": per_batch,
        "iterations": number(trainer, "num_iterations"),
        "accumulation": accumulation,
        "model_type": word(attribute(trainer, "model", "config", "model_type")),
        "reward_functions": reward_names(trainer),
        "ids": foreign_ids(sys.modules),
    }


def algorithm(trainer: type) -> str | None:
    """'grpo', 'rloo', ...: from the first class of TRL or Unsloth, never from the user's own."""
    for kind in trainer.__mro__:
        # Unsloth 2026.10: writes TRL's trainer anew as UnslothGRPOTrainer, in a module of its own.
        own = kind.__module__.split(".")[0] == "trl" or "Unsloth" in kind.__name__
        name = _TRAINER.fullmatch(kind.__name__)
        if own and name:
            return name[1].lower()
    return None


def reward_names(trainer: Any) -> list[str]:
    """Names of the reward functions, as TRL logs them; a reward model is named by its position.

    TRL names a reward model after the folder or repository it came from, which is not ours to keep.
    """
    functions = attribute(trainer, "reward_funcs") or ()
    names = attribute(trainer, "reward_func_names") or ()
    return [
        f"reward_model_{index}"
        if is_module(function)
        else word(names[index] if index < len(names) else None) or _name(function)
        for index, function in enumerate(functions)
    ]


def _engine(trainer: Any) -> str:
    if attribute(trainer, "use_vllm"):
        mode = attribute(trainer, "vllm_mode")
        return f"vllm-{mode}" if mode in ("colocate", "server") else "vllm"
    batching = ("use_transformers_continuous_batching", "use_transformers_paged")  # TRL 1.7, 0.20
    continuous = any(attribute(trainer, name) for name in batching)
    return "transformers-continuous" if continuous else "transformers"


def _rollout_tp(args: Any, engine: str) -> int | None:
    if engine.startswith("transformers"):
        return 1
    # A server decides for itself.
    return number(args, "vllm_tensor_parallel_size") if engine == "vllm-colocate" else None


def _name(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
