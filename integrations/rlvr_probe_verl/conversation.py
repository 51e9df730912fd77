"""One trajectory while an agent loop makes it: what its turns, tools and verification share.

An agent loop worker runs hundreds of trajectories in one event loop, each in a task of its own.
What belongs to one is found through its context, never through a list of those that run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CURRENT", "Conversation", "Output", "Version", "was_cut"]

Version = tuple[int, int]
"""Oldest and newest weights that a turn saw, as the trainer steps those had done."""


@dataclass(frozen=True, slots=True)
class Output:
    """One training sample that an agent loop returned.

    Attributes:
        prompt_tokens, response_tokens: Its lengths; results of tools are part of the response.
        runs: Tokens in and out of the loss in turn, those in it first; None if it has no mask.
        truncated: 1 if the cap stopped it, 0 if not, None if that is not known.
    """

    prompt_tokens: int | None
    response_tokens: int | None
    runs: list[int] | None
    truncated: int | None


@dataclass(slots=True)
class Conversation:
    """A trajectory from its begin to its end.

    Attributes:
        name: What names it in every process, without the number of its output; None if unknown.
        numbered: Whether a number of the output belongs to its name (V1).
        span: Its trajectory span, 0 if none is recorded.
        row: Its row, where its name needs what its agent loop is called with.
        loop: The agent loop that makes it, while that runs.
        client: What that loop asks for turns.
        turns: Turns that began.
        engines: The engines its turns were sent to, as far as they were seen.
        versions: Weights that each turn saw, None where the engine did not tell.
        stop: Why the engine says the last turn ended.
        asked: Turn after which tools were called last, -1 for none.
        broken: Whether one of those ended it: 0.5 goes on with no tool that failed.
        outputs: What the agent loop returned; None before it did.
        verified: Span that a verification belongs to.
        sharing: Spans of the other outputs, which are given the reward of that one.
    """

    name: str | None
    numbered: bool
    span: int
    row: int | None = None
    loop: Any = None
    client: Any = None
    turns: int = 0
    engines: list[Any] = field(default_factory=list)
    versions: list[Version | None] = field(default_factory=list)
    stop: str | None = None
    asked: int = -1
    broken: bool = False
    outputs: list[Output] | None = None
    verified: int = 0
    sharing: list[int] = field(default_factory=list)

    def key(self, index: int = 0) -> str | None:
        """What names its output ``index`` in every process."""
        return f"{self.name}_{index}" if self.name and self.numbered else self.name

    def version(self) -> tuple[int | None, int | None]:
        """Oldest and newest weights of all turns; None unless every turn's are known."""
        known = [version for version in self.versions if version is not None]
        if not known or len(known) < self.turns:
            return None, None
        return min(low for low, _ in known), max(high for _, high in known)


CURRENT: ContextVar[Conversation | None] = ContextVar("rlvr_probe_verl_conversation", default=None)
"""The trajectory of this context."""


def was_cut(
    tokens: Sequence[Any], cap: int | None, ends: frozenset[int], stop: str | None
) -> int | None:
    """Whether the cap, and no EOS, stopped a response: 1 or 0, None if that is not known.

    Args:
        tokens: The response.
        cap: Tokens it may have.
        ends: Tokens that end a response.
        stop: What the engine said of its last turn; vLLM behind verl does not tell the cap from an
            EOS, SGLang does.
    """
    if cap is None or stop in ("abort", "aborted"):
        return None
    if len(tokens) >= cap:
        return 0 if tokens and tokens[-1] in ends else 1
    return 1 if stop == "length" else 0
