"""Turns: how many a trajectory has, how long they are, what tools add between them."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.chapters.definitions import Definition, Found, SeriesDefinition
from rlvr_probe.analysis.chapters.distributions import Quantity, ask
from rlvr_probe.analysis.figures import query
from rlvr_probe.analysis.statements import fill, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["DEFINITIONS", "SERIES", "turns"]

_SQL: Final = statements(__name__)

_OF: Final = "hash(batch_id, grp) AS cluster, trajectory_id, number AS step, unit FROM"
_NONE: Final = "turns were not recorded one by one"
_NO_TOOLS: Final = "no tool was called"

_QUANTITIES: Final = (
    Quantity(
        "lengths.turns",
        "turns of a trajectory",
        "the number of turns of every trajectory whose turns are known (turn)",
        "1",
        _SQL["turns"],
        _NONE,
        by_step=True,
    ),
    Quantity(
        "lengths.turn.prompt",
        "tokens sent in a turn",
        "the tokens sent to the engine in every turn (turn.prompt_tokens)",
        "tokens",
        _SQL["turn_prompt"],
        _NONE,
    ),
    Quantity(
        "lengths.turn.response",
        "tokens generated in a turn",
        "the tokens generated in every turn (turn.response_tokens)",
        "tokens",
        _SQL["turn_response"],
        _NONE,
        by_step=True,
    ),
    Quantity(
        "lengths.observation",
        "tokens between two turns",
        "the tokens between two turns of a trajectory, results of tools and what the template puts"
        " around them: tokens sent, less tokens sent and generated in the turn before (turn)",
        "tokens",
        _SQL["observation"],
        "no trajectory has two turns that are known",
    ),
    Quantity(
        "lengths.tool_calls",
        "tool calls of a trajectory",
        "the number of tool calls of every trajectory whose turns are known (tool_call)",
        "1",
        _SQL["tool_calls"],
        _NO_TOOLS,
        by_step=True,
    ),
    Quantity(
        "lengths.tool_result",
        "result of a tool",
        "the tokens that every tool call added to the context (tool_call.added_tokens)",
        "tokens",
        _SQL["tool_result"],
        "no tool was called, or what it added is known of all turns together only",
    ),
)
_SUMS: Final = (
    Definition(
        "lengths.loss_share",
        "response tokens in the loss",
        "Sum of trajectory.loss_tokens over that of trajectory.response_tokens, of trajectories of"
        " which both are known.",
        "1",
        "the trainer has no mask of the loss, or none was recorded",
    ),
    Definition(
        "lengths.turn.sent",
        "tokens sent",
        "Sum of turn.prompt_tokens: the context counts again in every turn.",
        "tokens",
        _NONE,
    ),
    Definition(
        "lengths.turn.generated",
        "tokens generated",
        "Sum of turn.response_tokens.",
        "tokens",
        _NONE,
    ),
    Definition(
        "lengths.turn.cached",
        "tokens found in the prefix cache",
        "Sum of turn.cached_tokens.",
        "tokens",
        "engines did not tell what they found in their caches",
    ),
    Definition(
        "lengths.turn.cached_share",
        "share found in the prefix cache",
        "Sum of turn.cached_tokens over that of turn.prompt_tokens, of turns of which both are"
        " known.",
        "1",
        "engines did not tell what they found in their caches",
    ),
)
_BY_TURN: Final = SeriesDefinition(
    "lengths.turn.by_turn",
    "turns by their place",
    "Turns of training, those of batches that are not whole included: number, tokens sent and"
    " generated, share of those sent that was found in the prefix cache (turn).",
    {"turn": "", "count": "1", "prompt": "tokens", "response": "tokens", "cached_share": "1"},
)
_SENT: Final = SeriesDefinition(
    "lengths.turn.by_step",
    "turns by step",
    "Turns of each step and batch (unit; -1: a queue), and sums as lengths.turn.sent and so on"
    " (turn).",
    {
        "step": "", "unit": "", "turns": "1", "sent": "tokens", "generated": "tokens",
        "cached": "tokens",
    },
)  # fmt: skip
_HOW_MANY: Final = tuple(
    SeriesDefinition(
        f"lengths.{name}.histogram",
        f"trajectories by their {what}",
        f"As lengths.{name}.",
        {name: "1", "trajectories": "1"},
    )
    for name, what in (("turns", "turns"), ("tool_calls", "tool calls"))
)
DEFINITIONS: Final = (*(one for each in _QUANTITIES for one in each.definitions), *_SUMS)
SERIES: Final = (
    *(each.series for each in _QUANTITIES if each.by_step), _BY_TURN, _SENT, *_HOW_MANY,
)  # fmt: skip


def turns(tables: Tables, found: Found) -> None:
    """Add what turns tell; of turns that are whole trajectories, what those tell already."""
    several = query(tables, _SQL["several"]).row[0]
    if several:
        for quantity in _QUANTITIES:
            ask(tables, found, quantity)
        _shapes(tables, found)
    else:
        found.notes.append(
            "no trajectory is known to have two turns: there are no figures of turns"
        )
    answer = query(tables, _SQL["loss_share"])
    loss, *rest = _SUMS
    found.add(loss.of(answer.row[0], answer))
    every = query(tables, _SQL["every"]).row[0]
    answer = query(tables, fill(_SQL["sums"], only="" if every else _SQL["of_training"]))
    for one, value in zip(rest, answer.row, strict=True):
        found.add(one.of(value, answer))


def _shapes(tables: Tables, found: Found) -> None:
    answer = query(tables, _SQL["by_turn"])
    found.series.append(_BY_TURN.of(answer))
    answer = query(tables, _SQL["by_step"])
    found.series.append(_SENT.of(answer))
    for one in _HOW_MANY:
        name = one.id.split(".")[1]
        answer = query(tables, fill(_SQL["histogram"], name=name, rows=_SQL[name]))
        found.series.append(one.of(answer))
