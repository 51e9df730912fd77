"""One trajectory while it is made: what its turns, tools and verification share.

A process makes hundreds of trajectories in one event loop, each in a task of its own. What belongs
to one is found through its context, never through a list of those that run.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rlvr_probe.adapter.contract import Call
from rlvr_probe.reading import digest

__all__ = ["LENGTHS", "TURN_ATTRIBUTES", "Conversation", "Current", "Version", "turn_values"]

LENGTHS = (
    *("policy_version_min", "policy_version_max"),
    *("prompt_tokens", "response_tokens", "loss_runs", "truncated"),
)
"""Attributes of a trajectory: the weights that it saw, and what it is made of."""

TURN_ATTRIBUTES = (
    *("batch", "samples", "turn"),
    *("prompt_tokens", "response_tokens", "cached_tokens", "request"),
)
"""Attributes of a turn, in the order of :func:`turn_values`."""

Version = tuple[int, int]
"""Oldest and newest weights that a turn saw, as the trainer steps those had done."""


@dataclass(slots=True)
class Conversation:
    """A trajectory from its start to its end. A framework's own is a subclass.

    Attributes:
        span: Its trajectory span, 0 or None if none is recorded.
        key: Its name, the same in every process; None if that is unknown.
        turns: Turns that started.
        versions: Weights that each turn saw, None where those are unknown.
        stop: Why the engine says the last turn ended.
        over: It has ended; what it started may go on in its context.
    """

    span: int | None = None
    key: str | None = None
    turns: int = 0
    versions: list[Version | None] = field(default_factory=list)
    stop: str | None = None
    over: bool = False

    def start_turn(self) -> int:
        """Number of the turn that starts, from 0."""
        self.turns += 1
        self.stop = None
        return self.turns - 1

    @property
    def turn(self) -> int | None:
        """The turn that asks for tools now; None before the first."""
        return self.turns - 1 if self.turns else None

    def end_turn(self, stop: Any, version: Version | None) -> None:
        """A turn ended.

        Args:
            stop: Why, as the engine says.
            version: Weights that it saw.
        """
        self.stop = stop if isinstance(stop, str) else None
        self.versions.append(version)

    def version(self) -> tuple[int | None, int | None]:
        """Oldest and newest weights of all turns; None unless every turn's are known."""
        known = [version for version in self.versions if version is not None]
        if not known or len(known) < self.turns:
            return None, None
        return min(low for low, _ in known), max(high for _, high in known)


def turn_values(
    conversation: Conversation,
    turn: int,
    sent: int | None,
    generated: int | None,
    cached: int | None,
    request: object,
) -> tuple[Any, ...]:
    """Values of :data:`TURN_ATTRIBUTES`.

    Args:
        conversation: Whose turn it is.
        turn: Its number.
        sent: Tokens of the prompt.
        generated: Tokens of the answer.
        cached: Tokens of the prompt that were in the cache.
        request: The name that the engine has for it; a digest of it is recorded.
    """
    name = digest(request) if isinstance(request, str) else None
    return (conversation.span, 1, turn, sent, generated, cached, name)


_Own = TypeVar("_Own", bound=Conversation)


class Current(Generic[_Own]):
    """The trajectory of each context."""

    def __init__(self, name: str) -> None:
        self._held: ContextVar[_Own | None] = ContextVar(name, default=None)

    def get(self) -> _Own | None:
        """The trajectory that goes on in this context.

        A server or a worker that a trajectory starts has its context for good: what that does
        later belongs to no trajectory.
        """
        conversation = self._held.get()
        return None if conversation is None or conversation.over else conversation

    def enter(self, call: Call, conversation: _Own) -> None:
        """A trajectory starts at a call; :meth:`leave` ends it."""
        call.state = (conversation, self._held.get())
        self._held.set(conversation)

    def leave(self, call: Call) -> _Own | None:
        """End what started at a call; None if nothing did."""
        if not isinstance(call.state, tuple):
            return None
        conversation: _Own = call.state[0]
        conversation.over = True
        self._held.set(call.state[1])
        return conversation
