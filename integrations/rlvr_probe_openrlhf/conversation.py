"""One trajectory in the actor that makes it, from its begin to its end."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CURRENT", "Conversation", "current"]


@dataclass(slots=True)
class Conversation:
    """A trajectory from its begin to its end.

    Attributes:
        span: Its trajectory span, 0 if none is recorded.
        key: What names it in every process; None if that is not known.
        engine: What it asks for turns.
        executor: What makes it.
        turns: Turns that began.
        versions: Weights that each turn saw, None where that is not known.
        stop: Why the engine says the last turn ended.
        asking: Turns that have not ended.
        mixed: Others ask in its name: two turns at a time were seen.
        over: It has ended; what it started may go on in its context.
    """

    span: int
    key: str | None
    executor: Any
    engine: Any
    turns: int = 0
    versions: list[tuple[int, int] | None] = field(default_factory=list)
    stop: str | None = None
    asking: int = 0
    mixed: bool = False
    over: bool = False


CURRENT: ContextVar[Conversation | None] = ContextVar(
    "rlvr_probe_openrlhf_conversation", default=None
)
"""The trajectory that began in this context; see :func:`current`."""


def current() -> Conversation | None:
    """The trajectory that goes on in this context.

    A server or a worker that an executor starts has the context of the trajectory that started it
    for good: what it does later is none of that one's.
    """
    found = CURRENT.get()
    return None if found is None or found.over else found
