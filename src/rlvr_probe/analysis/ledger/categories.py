"""What the time of a GPU can be called, and what is called first where two things overlap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = [
    "CATEGORIES",
    "FAMILIES",
    "LAYERS",
    "MEANING",
    "NAMES",
    "STAGE_WAIT",
    "STAGE_WORK",
    "Layer",
    "cases",
    "layers",
]

MEANING: Final[Mapping[str, str]] = {
    "work.rollout": "with at least one sequence in its engine, however few",
    "work.old_logprob": "of its own computation in that stage",
    "work.ref_logprob": "of its own computation in that stage",
    "work.values": "of its own computation in that stage",
    "work.update_actor": "of its own computation in that stage",
    "work.update_critic": "of its own computation in that stage",
    "work.weight_sync": "of its own part in moving weights; of an engine that stands still for it",
    "work.other": "of a call, or a stage, that has no name of ours",
    "wait.rollout": "without a sequence to decode while the batch still has some; of a trainer,"
    " until a queue has what a step needs",
    "wait.reward": "with nothing left to decode until all is verified; a reward stage",
    "wait.update": "after its own part of a stage of the training, until the last one has done its"
    " part; of a rollout engine beside the training: nothing is left to decode",
    "wait.refit": "after its own part in moving weights, until the last one has done its part",
    "bubble": "in which nobody does anything that has a name, between two stages or steps",
    "overhead.data": "of fetching prompts",
    "overhead.dispatch": "in a stage until a call has reached the rank, and from the end of the"
    " last rank to that of the stage",
    "overhead.advantage": "of computing advantages",
    "overhead.probe": "that the probe took by its own account, as far as it is not in a stage",
    "eval": "of an evaluation, with everything in it",
    "checkpoint": "of a checkpoint, with everything in it",
    "discarded.filtered": "of rollout, for groups that did not pass a filter",
    "discarded.surplus": "of rollout, for groups that passed and were not trained on",
    "discarded.stale": "of rollout, for groups that were too old when they were taken from a queue",
    "discarded.truncated": "of rollout, for trajectories cut at the cap of which no token is in the"
    " loss",
    "discarded.redone": "of steps that were thrown away because a later attempt began before them",
    "unaccounted": "that nothing was recorded of",
}
"""Every category, and of which time of one GPU it is."""

CATEGORIES: Final = tuple(MEANING)

NAMES: Final[Mapping[str, str]] = {
    **{category: category.rpartition(".")[2].replace("_", " ") for category in CATEGORIES},
    "work.old_logprob": "old log-probs",
    "work.ref_logprob": "reference log-probs",
    "work.update_actor": "actor update",
    "work.update_critic": "critic update",
    "work.other": "other work",
    "wait.rollout": "wait for rollout",
    "wait.reward": "wait for reward",
    "wait.update": "wait for update",
    "wait.refit": "wait for weight sync",
    "overhead.advantage": "advantages",
    "eval": "evaluation",
}
"""What every category is called, on a terminal and on a page."""

FAMILIES: Final[Mapping[str, str]] = {
    "work": "work",
    "wait": "waiting",
    "bubble": "bubble",
    "overhead": "overhead",
    "eval": "evaluation",
    "checkpoint": "checkpoint",
    "discarded": "discarded",
    "unaccounted": "unaccounted",
}
"""What categories with the same first word are called together, in the order of a report."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One kind of interval that may be known of a GPU.

    Attributes:
        name: Of the layer.
        category: What its time is called where no later layer covers it.
    """

    name: str
    category: str


LAYERS: Final = (
    Layer("bubble", "bubble"),
    Layer("idle", "wait.update"),
    Layer("other", "work.other"),
    Layer("dispatch", "overhead.dispatch"),
    Layer("unknown", "unaccounted"),
    Layer("wait.reward", "wait.reward"),
    Layer("wait.rollout", "wait.rollout"),
    Layer("full", "wait.update"),
    Layer("wait.update", "wait.update"),
    Layer("wait.refit", "wait.refit"),
    Layer("data", "overhead.data"),
    Layer("queue", "wait.rollout"),
    Layer("advantage", "overhead.advantage"),
    Layer("old_logprob", "work.old_logprob"),
    Layer("ref_logprob", "work.ref_logprob"),
    Layer("values", "work.values"),
    Layer("update_critic", "work.update_critic"),
    Layer("update_actor", "work.update_actor"),
    Layer("rollout", "work.rollout"),
    Layer("weight_sync", "work.weight_sync"),
    Layer("checkpoint", "checkpoint"),
    Layer("eval", "eval"),
)
"""From what is said only where nothing else is known, to what nothing else is said beside."""

NUMBER: Final = {layer.name: number for number, layer in enumerate(LAYERS)}

STAGE_WORK: Final[Mapping[str, str]] = {
    "data": "data",
    "rollout": "rollout",
    "reward": "wait.reward",
    "old_logprob": "old_logprob",
    "ref_logprob": "ref_logprob",
    "values": "values",
    "advantage": "advantage",
    "update_actor": "update_actor",
    "update_critic": "update_critic",
    "weight_sync": "weight_sync",
    "eval": "eval",
    "checkpoint": "checkpoint",
    "other": "other",
}
"""The layer of a stage where only its begin and end are known."""

STAGE_CALL: Final[Mapping[str, str]] = {
    **{
        stage: stage
        for stage in (
            "rollout", "old_logprob", "ref_logprob", "values", "update_actor", "update_critic",
            "weight_sync", "eval", "checkpoint",
        )
    },
}  # fmt: skip
"""The layer of what one rank does in a stage; of others it has no name of ours."""

STAGE_WAIT: Final[Mapping[str, str]] = {
    "rollout": "wait.rollout",
    "reward": "wait.reward",
    "old_logprob": "wait.update",
    "ref_logprob": "wait.update",
    "values": "wait.update",
    "update_actor": "wait.update",
    "update_critic": "wait.update",
    "weight_sync": "wait.refit",
}
"""The layer of waiting for the last rank of a stage."""


def layers(*names: str) -> dict[str, int]:
    """Numbers of layers as values of a statement, by name; with ``_`` for the dot in it."""
    return {name.replace(".", "_"): NUMBER[name] for name in names}


def cases(column: str, of: Mapping[str, str], otherwise: str | None = None) -> str:
    """SQL that gives the number of a layer for each value of ``column``.

    Args:
        column: An expression.
        of: Name of the layer by value.
        otherwise: Name of that of all other values; without one they have none.
    """
    when = " ".join(f"WHEN '{value}' THEN {NUMBER[layer]}" for value, layer in of.items())
    rest = "NULL" if otherwise is None else NUMBER[otherwise]
    return f"CASE {column} {when} ELSE {rest} END"
