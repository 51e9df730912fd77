"""Filtering: which groups a trainer kept and trained on, and what became of the others' tokens."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.chapters.definitions import Definition, Found, SeriesDefinition
from rlvr_probe.analysis.chapters.distributions import Quantity, ask
from rlvr_probe.analysis.figures import query
from rlvr_probe.analysis.statements import fill, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["DEFINITIONS", "SERIES", "filtered"]

_SQL: Final = statements(__name__)

_NONE: Final = "no filter was recorded"


def _part(name: str, what: str, condition: str) -> Quantity:
    return Quantity(
        f"lengths.{name}",
        f"response {what}",
        f"the response of every trajectory of a group that was {what} (prompt_group.used)",
        "tokens",
        fill(_SQL["response"], condition=condition),
        _NONE,
    )


_PARTS: Final = (
    _part("used", "trained on", "used"), _part("unused", "not trained on", "NOT used"),
)  # fmt: skip
_SHARES: Final = (
    Definition(
        "lengths.filter.groups",
        "groups",
        "Number of groups of which it is known whether they passed (prompt_group).",
        "1",
        _NONE,
    ),
    Definition(
        "lengths.filter.kept",
        "groups that passed the filter",
        "Number of groups that passed (prompt_group.kept).",
        "1",
        _NONE,
    ),
    Definition(
        "lengths.filter.used",
        "groups trained on",
        "Number of groups that were trained on (prompt_group.used).",
        "1",
        _NONE,
    ),
    Definition(
        "lengths.filter.kept_share",
        "share of groups that passed",
        "Groups that passed the filter over groups of which that is known (prompt_group.kept).",
        "1",
        _NONE,
    ),
    Definition(
        "lengths.filter.used_share",
        "share of groups trained on",
        "Groups trained on over groups of which that is known (prompt_group.used).",
        "1",
        _NONE,
    ),
    Definition(
        "lengths.filter.unused_tokens",
        "share of response tokens not trained on",
        "Response tokens of groups that were not trained on over those of all groups of which that"
        " is known (trajectory.response_tokens, prompt_group.used).",
        "1",
        _NONE,
    ),
)
_BATCHES: Final = SeriesDefinition(
    "lengths.filter.by_step",
    "groups by step",
    "Generation batches of each step, and groups in them that were generated, passed the filter,"
    " and were trained on (batch, prompt_group).",
    {"step": "", "batches": "1", "groups": "1", "kept": "1", "used": "1"},
)
DEFINITIONS: Final = (*(one for each in _PARTS for one in each.definitions), *_SHARES)
SERIES: Final = (_BATCHES,)


def filtered(tables: Tables, found: Found) -> None:
    """Add what a filter did, if there was one."""
    answer = query(tables, _SQL["shares"])
    [told] = answer.dicts
    if not told["groups"]:
        found.add(_SHARES[0].of(None, answer))
        return
    for one in _SHARES:
        found.add(one.of(told[one.id.rpartition(".")[2]], answer))
    for part in _PARTS:
        ask(tables, found, part)
    steps = query(tables, _SQL["by_step"])
    found.series.append(_BATCHES.of(steps))
