"""What the adapter remembers about the trainer of this process between its hook points.

A controller is the process that has OpenRLHF's trainer object: the actor ``PPOTrainer``, or
``TrainingActor`` where another one, ``GenerateSamplesActor``, generates. That one has no trainer.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from rlvr_probe.adapter import Call, Probe
from rlvr_probe.reading import attribute

__all__ = [
    "Controller",
    "Where",
    "controller_of",
    "generates_itself",
    "is_controller",
    "learn",
    "named",
    "trainer",
]

Where = tuple[int, int, str]
"""Session, step and mode: the attributes that place a record in its run."""

_trainer: weakref.ref[Any] | None = None


@dataclass(slots=True)
class Controller:
    """State of one trainer. Holds no reference to it, so that it lives no longer than before.

    Attributes:
        session: Number of its training in this process; None before it began one.
        done: Steps that are done, by OpenRLHF's own count.
        episodes: Passes over the prompts that are left; None if that is not known.
        step_span: Span of the step in work, 0 if none is open.
        evaluation: Span of the evaluation that is open, 0 if none is.
        maker: Span of the stage that the maker of experience is in, and its place.
        checkpoint: Span of the checkpoint that is written, 0 if none is.
        batch: Rollout span of the trajectories of the step, 0 where another process generates.
        rows: How many they are, 0 once their rewards were told.
        taken: Batches that were taken from the queue.
        synced: How often weights were moved to the engines.
    """

    session: int | None = None
    done: int = 0
    episodes: int | None = None
    step_span: int = 0
    evaluation: int = 0
    maker: tuple[int, dict[str, Any]] | None = None
    checkpoint: int = 0
    batch: int = 0
    rows: int = 0
    taken: int = 0
    synced: int = 0

    def where(self) -> Where:
        """Place of something that happens now."""
        mode = "eval" if self.evaluation else "train"
        return self.session or 0, self.done + (1 if self.step_span else 0), mode


def named(where: Where) -> dict[str, Any]:
    """A place as attributes."""
    return dict(zip(("session", "step", "mode"), where, strict=True))


def learn(call: Call) -> None:
    """After the constructor of a trainer: it is the trainer of this process from here on."""
    global _trainer
    if call.error is None:
        _trainer = weakref.ref(call.args[0])


def trainer() -> Any:
    """The trainer of this process; None if it has none."""
    return None if _trainer is None else _trainer()


def is_controller(call: Call) -> bool:
    """Whether this process has a trainer."""
    return trainer() is not None


def generates_itself() -> bool:
    """Whether the trainer of this process has its own generator."""
    return attribute(trainer(), "samples_generator") is not None


def controller_of(probe: Probe) -> Controller:
    """State of the trainer of this process, the same at every call.

    Raises:
        LookupError: It has none.
    """
    owner = trainer()
    if owner is None:
        raise LookupError("this process has no trainer")
    state = probe.state(owner)
    found = state.get("controller")
    if not isinstance(found, Controller):
        found = state["controller"] = Controller()
    return found
