"""What a viewer shows of a span before it is opened: its name, its kind, a line about a trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rlvr_probe.model import names
from rlvr_probe_otlp.planning.data_model import Attributes, Value
from rlvr_probe_otlp.planning.names import SPANS

__all__ = ["KIND", "OF_STEP", "OF_TRAJECTORY", "line", "seen", "title"]

KIND: Final = "openinference.span.kind"
"""How viewers of OpenInference colour a span; without it Phoenix 20 calls it unknown."""

_KINDS: Final[Mapping[str, str]] = {
    SPANS[names.TRAJECTORY.name]: "AGENT",
    SPANS[names.TURN.name]: "LLM",
    SPANS[names.TOOL_CALL.name]: "TOOL",
    SPANS[names.REWARD.name]: "EVALUATOR",
}

_TOLD_APART_BY: Final[Mapping[str, str]] = {
    SPANS[names.RPC.name]: "rlvr.rpc.method",
    SPANS[names.REWARD_FN.name]: "rlvr.reward.fn",
    SPANS[names.TURN.name]: "gen_ai.request.model",
    SPANS[names.TOOL_CALL.name]: "gen_ai.tool.name",
    SPANS[names.WAIT.name]: "rlvr.wait.for",
    SPANS[names.USER.name]: "rlvr.label",
}
"""What says most of a span of this name; of few values, as names of spans should be."""

_LONGEST: Final = 64

_Words = tuple[tuple[str, str], ...]

OF_STEP: Final[tuple[_Words, _Words]] = (
    (("rl.loop.iteration", "step {}"), ("rlvr.attempt", "attempt {}")),
    (("rlvr.trajectories", "trajectories {}"), ("rlvr.response_tokens", "response tokens {}")),
)
"""What the two lines about a step are made of: an attribute, and how it is said."""

OF_TRAJECTORY: Final[tuple[_Words, _Words]] = (
    (
        ("rl.loop.iteration", "step {}"),
        ("rlvr.mode", "{}"),
        ("rlvr.group.index", "prompt {}"),
        ("rlvr.row", "row {}"),
    ),
    (
        ("rl.sample.turns", "turns {}"),
        ("rl.sample.output_tokens", "response tokens {}"),
        ("rlvr.finish_reason", "{}"),
        ("rl.reward.score", "reward {:.4g}"),
    ),
)
"""What the two lines about a trajectory are made of."""


def title(name: str, attributes: Attributes) -> str:
    """The name of a span with what distinguishes it from its namesakes: ``rl.reward math``."""
    if attributes.get("rlvr.stage") == names.UPDATE_CRITIC.name:
        return f"{name} critic"
    key = _TOLD_APART_BY.get(name)
    called = key and (attributes.get(key) or attributes.get("rlvr.detail"))
    return f"{name} {str(called)[:_LONGEST]}" if called else name


def seen(name: str, attributes: Attributes) -> dict[str, Value]:
    """The attributes of a span with its kind, which its name without more says."""
    return {**attributes, KIND: _KINDS.get(name, "CHAIN")}


def line(attributes: Attributes, about: tuple[_Words, _Words]) -> dict[str, Value]:
    """Which one a trace is and what came of it, where Phoenix and MLflow list traces.

    Their columns are for prompts and responses, which are not recorded.
    """
    found = dict[str, Value]()
    for column, words in zip(("input.value", "output.value"), about, strict=True):
        said = [form.format(attributes[key]) for key, form in words if key in attributes]
        if said:
            found[column] = ", ".join(said)
    return found
