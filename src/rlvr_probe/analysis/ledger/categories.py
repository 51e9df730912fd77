"""What the time of a GPU can be called, and what is called first where two things overlap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rlvr_probe.analysis.statements import read_texts

__all__ = [
    "CATEGORIES",
    "FAMILIES",
    "LAYERS",
    "MEANING",
    "NAMES",
    "STAGE_WAIT",
    "STAGE_WORK",
    "cases",
    "layers",
]

MEANING: Final[Mapping[str, str]] = read_texts(__name__, "categories.ini")["categories"]
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
    **{family: family for family in (name.partition(".")[0] for name in CATEGORIES)},
    "wait": "waiting",
    "eval": "evaluation",
}
"""What categories with the same first word are called together, in the order of a report."""


LAYERS: Final[Mapping[str, str]] = {
    "bubble": "bubble",
    "idle": "wait.update",
    "other": "work.other",
    "dispatch": "overhead.dispatch",
    "unknown": "unaccounted",
    "wait.reward": "wait.reward",
    "wait.rollout": "wait.rollout",
    "full": "wait.update",
    "wait.update": "wait.update",
    "wait.refit": "wait.refit",
    "data": "overhead.data",
    "queue": "wait.rollout",
    "advantage": "overhead.advantage",
    "old_logprob": "work.old_logprob",
    "ref_logprob": "work.ref_logprob",
    "values": "work.values",
    "update_critic": "work.update_critic",
    "update_actor": "work.update_actor",
    "rollout": "work.rollout",
    "weight_sync": "work.weight_sync",
    "checkpoint": "checkpoint",
    "eval": "eval",
}
"""Kinds of intervals that may be known of a GPU, and what the time of each is called where no later
one covers it."""

NUMBER: Final = {layer: number for number, layer in enumerate(LAYERS)}

_UPDATES: Final = ("old_logprob", "ref_logprob", "values", "update_actor", "update_critic")

STAGE_CALL: Final[Mapping[str, str]] = {
    stage: stage for stage in ("rollout", *_UPDATES, "weight_sync", "eval", "checkpoint")
}
"""The layer of what one rank does in a stage; of others it is that of other work."""

STAGE_WORK: Final[Mapping[str, str]] = {
    **STAGE_CALL,
    "data": "data",
    "advantage": "advantage",
    "reward": "wait.reward",
    "other": "other",
}
"""The layer of a stage where only its start and end are known."""

STAGE_WAIT: Final[Mapping[str, str]] = {
    "rollout": "wait.rollout",
    "reward": "wait.reward",
    **dict.fromkeys(_UPDATES, "wait.update"),
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
