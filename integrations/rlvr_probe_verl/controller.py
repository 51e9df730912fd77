"""What the adapter remembers about the trainer of this process between its hook points.

A controller is the process that has verl's trainer object: an actor, which verl calls TaskRunner.
Timers, workers and batches exist in other processes as well, which have no trainer; what is hooked
there for the controller's sake is left alone.
"""

from __future__ import annotations

import weakref
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.adapter import Call, Probe
from rlvr_probe.reading import number
from rlvr_probe_verl.generations import Generation

__all__ = [
    "IN_RPC",
    "Controller",
    "Where",
    "controller_of",
    "is_controller",
    "learn",
    "named",
    "steps_begun",
    "trainer",
]

Where = tuple[int, int, str]
"""Session, step and mode: the attributes that place a record in its run."""

IN_RPC: ContextVar[bool] = ContextVar("rlvr_probe_verl_rpc", default=False)
"""Whether a worker group is being called, or a call of one is being done."""

_trainer: weakref.ref[Any] | None = None
_GENERATIONS = 64
"""Most generations that are remembered; a recipe that filters makes a few for one step."""


@dataclass(slots=True)
class Controller:
    """State of one trainer. Holds no reference to it, so that it lives no longer than before.

    Attributes:
        session: Number of its training in this process; None before it began one.
        ended: Whether its last step was done.
        step: Step that is open, or the last one.
        step_span: Its span, 0 if none is open.
        updated: Whether a model was updated in it.
        timers: Timers that run, outermost first: what they are called, and what they write to.
        rollout: Span of the rollout stage that is open, 0 if none is.
        samples: Trajectories generated in it; None if that is unknown.
        reward: Span of the reward stage that is open, 0 if none is.
        scoring: Whether a reward manager is at work.
        baseline: Whether a baseline is generated and scored (ReMax), which nothing is trained on.
        evaluation: Span of the evaluation that is open, 0 if none is.
        place: Place of the last generation, and how many were made there.
        generations: Those of the step, and of the evaluation, in work.
        padding: The batch that was filled up last, and by how many rows.
        order: The batch that was put in another order last, and which row each of its rows was.
        kept: Names of the prompts that passed a filter in this step; None if there was none.
        discarded: Names of those that were told not to have passed.
        chosen: Whether it is known what is trained on in it.
    """

    session: int | None = None
    ended: bool = False
    step: int = 0
    step_span: int = 0
    updated: bool = False
    timers: list[tuple[str, int]] = field(default_factory=list)
    rollout: int = 0
    samples: int | None = None
    reward: int = 0
    scoring: bool = False
    baseline: bool = False
    evaluation: int = 0
    place: tuple[Where | None, int] = (None, 0)
    generations: list[Generation] = field(default_factory=list)
    padding: tuple[weakref.ref[Any] | None, int] = (None, 0)
    order: tuple[weakref.ref[Any] | None, list[int]] = (None, [])
    kept: set[str] | None = None
    discarded: set[str] = field(default_factory=set)
    chosen: bool = False

    def where(self) -> Where:
        """Place of something that happens now."""
        if self.evaluation:
            return self.session or 0, self.step if self.counted else steps_begun(), "eval"
        return self.session or 0, steps_begun(), "train"

    @property
    def counted(self) -> bool:
        """Whether the next step is counted already, and has not begun."""
        return not self.step_span and 0 < self.step < steps_begun()

    def ordinal(self, where: Where) -> int:
        """Position of a new generation among those at the same place, from 0."""
        last, count = self.place
        count = count if last == where else 0
        self.place = (where, count + 1)
        return count

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
        self.generations = [one for one in self.generations if one.mode != mode]


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


def steps_begun() -> int:
    """Number of the step the trainer is in, from 1; 0 before the first."""
    # The count is that of the step in work, not of steps done, from the begin of the loop on.
    return number(trainer(), "global_steps") or 0
