"""One trajectory in the actor that makes it, from its begin to its end."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CURRENT", "Conversation"]


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
    """

    span: int
    key: str | None
    executor: Any
    engine: Any
    turns: int = 0
    versions: list[tuple[int, int] | None] = field(default_factory=list)
    stop: str | None = None


CURRENT: ContextVar[Conversation | None] = ContextVar(
    "rlvr_probe_openrlhf_conversation", default=None
)
"""The trajectory of this context."""
