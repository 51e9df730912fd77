"""What the adapter remembers about one trainer between its hook points."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.adapter import Call, Probe
from rlvr_probe_trl.session import Sessions

__all__ = [
    "BATCH",
    "SESSIONS",
    "WHERE",
    "Batch",
    "Swapped",
    "Training",
    "Where",
    "abandon",
    "begin_step",
    "close_step",
    "named",
    "read_place",
    "step_now",
    "stepping",
    "training_of",
]

Where = tuple[int, int, str]
"""Session, step and mode: the attributes that place a record in its run."""

WHERE = ("session", "step", "mode")
"""The names of those attributes."""

SESSIONS = Sessions()


def named(where: Where) -> dict[str, Any]:
    """A place as attributes."""
    return dict(zip(WHERE, where, strict=True))


class Swapped(list[tuple[list[Any], int, Any, Any]]):
    """List, index, function of the user and its wrapper, for one computation of rewards."""


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
        told: Whether its lengths were recorded.
        reward: Its reward span.
        reward_open: Whether that is to be ended by hand: TRL below 0.24.
        swapped: The user's reward functions whose place wrappers have.
        old_seen: Whether the log-probabilities of the sampling policy were computed.
        function_end_ns: When the last reward function returned.
        rewards_end_ns: When the rewards of all ranks were there.
        names: Names of the reward functions, in the order of the trainer.
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
    told: bool = False
    reward: int = 0
    reward_open: bool = False
    swapped: Swapped = field(default_factory=Swapped)
    old_seen: bool = False
    function_end_ns: int = 0
    rewards_end_ns: int = 0
    names: list[str] = field(default_factory=list)
    models: dict[str, int] = field(default_factory=dict)
    model_spans: dict[str, int] = field(default_factory=dict)


BATCH: ContextVar[Batch | None] = ContextVar("rlvr_probe_trl_batch", default=None)
"""The batch whose rewards are computed: async reward functions run on another thread, in a copy of
this context."""


@dataclass(slots=True)
class Training:
    """State of one trainer. Holds no reference to it, so that it lives no longer than before.

    Attributes:
        session: Number of its training in this process; None before it began one.
        step: Step that is open, or the last one.
        step_span: Its span, 0 if none is open.
        in_training_step: Between begin and end of a micro step.
        update_span: Policy update of the open micro step, 0 before its inputs are ready.
        optimizer_spans: Open spans of an optimizer step, outermost first.
        optimizer_depth: Optimizer steps entered and not left.
        evaluating: Inside an evaluation.
        batch: The batch that is being made.
        place: Place of the last generation, and how many were made there.
        stops: Token ids that end a completion; None before they are known. Asking a tokenizer for
            one takes longer than all other counting.
    """

    session: int | None = None
    step: int = 0
    step_span: int = 0
    in_training_step: bool = False
    update_span: int = 0
    optimizer_spans: tuple[int, ...] = ()
    optimizer_depth: int = 0
    evaluating: bool = False
    batch: Batch | None = None
    place: tuple[Where | None, int] = (None, 0)
    stops: frozenset[int] | None = None

    def where(self, trainer: Any, mode: str | None = None) -> Where:
        """Place of something that happens now: the step in work, or the last one if evaluating."""
        if mode is None:
            mode = "eval" if self.evaluating or not trainer.model.training else "train"
        done: int = trainer.state.global_step
        session = SESSIONS.number if self.session is None else self.session
        return session, done + (mode == "train"), mode

    def ordinal(self, where: Where) -> int:
        """Position of a new generation among those at the same place, from 0."""
        last, count = self.place
        count = count if last == where else 0
        self.place = (where, count + 1)
        return count


def training_of(probe: Probe, trainer: object) -> Training:
    """The state of ``trainer``, the same at every call."""
    state = probe.state(trainer)
    training = state.get("training")
    if not isinstance(training, Training):
        training = state["training"] = Training()
    return training


def read_place(call: Call) -> tuple[Any, ...]:
    """Session, step and mode of the batch in work; the call is one of a trainer's method."""
    trainer = call.args[0]
    training = training_of(call.probe, trainer)
    return training.batch.where if training.batch is not None else training.where(trainer)


def step_now(call: Call) -> int | None:
    """The step in work."""
    return training_of(call.probe, call.args[0]).where(call.args[0])[1]


# ---------------------------------------------------------------- what is open

_ABANDONED = "Abandoned"
_stepping: dict[int, Training] = {}
"""The training whose step is open, by thread."""


def begin_step(training: Training) -> None:
    """This thread is in a step of ``training`` from here on."""
    _stepping[threading.get_ident()] = training


def stepping() -> Training | None:
    """The training whose step is open on this thread."""
    return _stepping.get(threading.get_ident())


def abandon(probe: Probe, training: Training) -> None:
    """End what an exception or an early stop left open."""
    close_step(probe, training, _ABANDONED)


def close_step(probe: Probe, training: Training, error: str | None = None) -> None:
    """End the step of ``training``, and what is open inside of it."""
    if _stepping.get(threading.get_ident()) is training:
        del _stepping[threading.get_ident()]
    place = {"session": training.session, "step": training.step}
    for span in reversed(training.optimizer_spans):
        probe.end(span, place, _ABANDONED)
    if training.update_span:
        probe.end(training.update_span, {**place, "mode": "train"}, _ABANDONED)
    probe.end(training.step_span, place, error)
    training.optimizer_spans, training.optimizer_depth = (), 0
    training.step_span = training.update_span = 0
    training.in_training_step = False
