"""What an adapter remembers about a trainer between its hook points, and its run and its steps.

A process has one trainer of a framework; in other processes of its job the same functions are
hooked, and there is none.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rlvr_probe.adapter.contract import Call, HookPoint, Probe
from rlvr_probe.model.names import SESSION, SESSION_END, STEP

__all__ = ["WHERE", "Controller", "Sessions", "Where", "instrument_once", "named", "state_of"]

Where = tuple[int, int, str]
"""Session, step and mode: the attributes that place a record in its run."""

WHERE = ("session", "step", "mode")
"""The names of those attributes."""

_State = TypeVar("_State")
_Own = TypeVar("_Own", bound="Controller")

_trainers: dict[type, weakref.ref[Any]] = {}


def named(where: Where) -> dict[str, Any]:
    """A place as attributes."""
    return dict(zip(WHERE, where, strict=True))


def state_of(probe: Probe, owner: object, kind: type[_State]) -> _State:
    """The ``kind`` that belongs to ``owner``, the same at every call; made when first asked for."""
    states = probe.state(owner)
    state = states.get(kind.__name__)
    if not isinstance(state, kind):
        state = states[kind.__name__] = kind()
    return state


def instrument_once(
    probe: Probe, owner: object, points: Sequence[HookPoint], others: Sequence[HookPoint] = ()
) -> int:
    """Hook methods of an object, or of a class, unless its class was seen before.

    Args:
        probe: To hook with.
        owner: The object.
        points: Methods that count.
        others: Methods that do not.

    Returns:
        How many of ``points`` are in effect on that class.
    """
    state = probe.state(owner if isinstance(owner, type) else type(owner))
    if "hooked" not in state:
        if others:
            probe.instrument(owner, others)
        state["hooked"] = probe.instrument(owner, points)
    return int(state["hooked"])


class Sessions:
    """Numbers of the runs that started from step 0 in this process, from 0.

    A resumed run goes on with the number that its process has: it continues that one.

    Attributes:
        number: That of the latest run.
    """

    def __init__(self) -> None:
        self.number = 0
        self._started = False

    def start(self, resumed_step: int) -> int:
        """Number of the run that starts after ``resumed_step`` trainer steps."""
        if resumed_step == 0 and self._started:
            self.number += 1
        self._started = True
        return self.number


_sessions: dict[type, Sessions] = {}


@dataclass(slots=True)
class Controller:
    """State of one trainer. Holds no reference to it, so that it lives no longer than before.

    A framework's own is a subclass, with what else is remembered.

    Attributes:
        session: Number of its run in this process; None before that started.
        step: Step that is open, or the last one.
        step_span: Its span, 0 if none is open.
        evaluation: Span of the evaluation that is open, 0 if none is.
        generated: Place of the last generation, and how many were made there.
    """

    session: int | None = None
    step: int = 0
    step_span: int = 0
    evaluation: int = 0
    generated: tuple[Where | None, int] = field(default=(None, 0))

    @classmethod
    def learn(cls, call: Call) -> None:
        """After the constructor of a trainer: it is the trainer of this process from here on."""
        if call.error is None:
            _trainers[cls] = weakref.ref(call.args[0])

    @classmethod
    def trainer(cls) -> Any:
        """The trainer of this process; None if it has none."""
        known = _trainers.get(cls)
        return None if known is None else known()

    @classmethod
    def is_here(cls, call: Call) -> bool:
        """Whether this process has a trainer."""
        return cls.trainer() is not None

    @classmethod
    def of(cls: type[_Own], probe: Probe) -> _Own:
        """State of the trainer of this process.

        Raises:
            LookupError: It has none.
        """
        owner = cls.trainer()
        if owner is None:
            raise LookupError("this process has no trainer")
        return state_of(probe, owner, cls)

    @classmethod
    def sessions(cls) -> Sessions:
        """Runs of this process."""
        return _sessions.setdefault(cls, Sessions())

    def start_session(self, probe: Probe, facts: Mapping[str, Any], resumed_step: int) -> None:
        """Record that a run starts after ``resumed_step`` steps, and its facts."""
        self.session = self.sessions().start(resumed_step)
        values = {"session": self.session, **facts, "resumed_step": resumed_step}
        probe.emit(SESSION, values)

    def end_session(self, probe: Probe, step: int) -> None:
        """Record that the run ended by itself, after ``step`` steps."""
        probe.emit(SESSION_END, {"session": self.session, "step": step})

    def at(self) -> dict[str, Any]:
        """Attributes of the step: its run and its number."""
        return {"session": self.session, "step": self.step}

    def open_step(self, probe: Probe, step: int) -> None:
        """Start a step."""
        self.step = step
        self.step_span = probe.begin(STEP, step=step, activate=True)

    def close_step(self, probe: Probe, error: str | None = None) -> None:
        """End the step that is open."""
        span, self.step_span = self.step_span, 0
        probe.end(span, self.at(), error)

    def drop_step(self, probe: Probe) -> None:
        """Forget the step that is open: it turned out to be none."""
        span, self.step_span = self.step_span, 0
        probe.drop(span)

    def ordinal(self, where: Where) -> int:
        """Position of a new generation among those at the same place, from 0."""
        last, count = self.generated
        count = count if last == where else 0
        self.generated = (where, count + 1)
        return count
