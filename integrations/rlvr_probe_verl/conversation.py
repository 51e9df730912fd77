"""One trajectory while an agent loop makes it, and the samples that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.adapter import Call
from rlvr_probe.adapter import conversation as kit

__all__ = ["CURRENT", "Conversation", "Output", "in_conversation", "was_cut"]


@dataclass(frozen=True, slots=True)
class Output:
    """One sample that an agent loop returned.

    Attributes:
        prompt_tokens, response_tokens: Its lengths; results of tools are part of the response.
        runs: Tokens in and out of the loss in turn, those in it first; None if it has no mask.
        truncated: 1 if the cap stopped it, 0 if not, None if that is unknown.
    """

    prompt_tokens: int | None
    response_tokens: int | None
    runs: list[int] | None
    truncated: int | None


@dataclass(slots=True)
class Conversation(kit.Conversation):
    """A trajectory from its start to its end.

    Its key is without the number of its output.

    Attributes:
        numbered: Whether a number of the output belongs to its name (V1).
        row: Its row, where its name needs what its agent loop is called with.
        loop: The agent loop that makes it, while that runs.
        client: What that loop asks for turns.
        engines: The engines its turns were sent to, as far as they were seen.
        asked: Turn after which tools were called last, -1 for none.
        broken: Whether one of those ended it: 0.5 goes on with no tool that failed.
        outputs: What the agent loop returned; None before it did.
        verified: Span that a verification belongs to.
        sharing: Spans of the other outputs, which are given the reward of that one.
    """

    numbered: bool = False
    row: int | None = None
    loop: Any = None
    client: Any = None
    engines: list[Any] = field(default_factory=list)
    asked: int = -1
    broken: bool = False
    outputs: list[Output] | None = None
    verified: int = 0
    sharing: list[int] = field(default_factory=list)

    def name(self, index: int = 0) -> str | None:
        """What names its output ``index`` in every process."""
        return f"{self.key}_{index}" if self.key and self.numbered else self.key


CURRENT = kit.Current[Conversation]("rlvr_probe_verl_conversation")
"""The trajectory of each context."""


def in_conversation(call: Call) -> bool:
    """Whether the agent loop of this context is the one that is called."""
    conversation = CURRENT.get()
    return conversation is not None and conversation.loop is call.args[0]


def was_cut(
    tokens: Sequence[Any], cap: int | None, ends: frozenset[int], stop: str | None
) -> int | None:
    """Whether the cap, and no EOS, stopped a response: 1 or 0, None if that is unknown.

    Args:
        tokens: The response.
        cap: Tokens it may have.
        ends: Tokens that end a response.
        stop: What the engine said of its last turn; vLLM behind verl gives the cap and an EOS one
            name, SGLang two.
    """
    if cap is None or stop in ("abort", "aborted"):
        return None
    if len(tokens) >= cap:
        return 0 if tokens and tokens[-1] in ends else 1
    return 1 if stop == "length" else 0
