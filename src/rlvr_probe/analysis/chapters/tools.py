"""Tools: which take how long, how they end, and what part of a trajectory's time they are."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.chapters.calls import Calls
from rlvr_probe.analysis.chapters.definitions import (
    Definition,
    Found,
    evidence_of,
)
from rlvr_probe.analysis.chapters.distributions import Quantity, ask
from rlvr_probe.analysis.chapters.samples import prepare
from rlvr_probe.analysis.figures import Chapter, query
from rlvr_probe.analysis.statements import fill, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["DEFINITIONS", "SERIES", "TABLES", "tools"]

_SQL: Final = statements(__name__)

_CALLS: Final = Calls(
    "tools.tool",
    "tool",
    "the calls of a tool by trajectories of training (tool_call)",
    _SQL["calls"],
    "no call of a tool was recorded",
)
_TRAJECTORY_S: Final = Quantity(
    "tools.trajectory_s",
    "tool time of a trajectory",
    "the sum of the durations of the tool calls of every trajectory whose turns are known, 0 for"
    " one without a call (tool_call)",
    "s",
    _SQL["trajectory_s"],
    "no call of a tool was recorded",
    by_step=True,
)
_CALL_S: Final = Quantity(
    "tools.call_s",
    "duration of a tool call",
    "the duration of every tool call (tool_call.took_s)",
    "s",
    _SQL["call_s"],
    "no call of a tool was recorded",
    by_step=True,
)
_QUERIES: Final = Quantity(
    "tools.queries",
    "questions of a tool call",
    "the questions that every tool call asked at once (tool_call.queries)",
    "1",
    _SQL["queries"],
    "only a workload says it",
)
_SHARE: Final = Definition(
    "tools.trajectory_share",
    "share of a trajectory's time",
    "Sum of the durations of tool calls over that of tool calls and turns (tool_call, turn).",
    "1",
    "no call of a tool was recorded, or no time of a turn",
)
_STATUS: Final = Definition(
    "tools.status",
    "calls by outcome",
    "How many calls of a tool by trajectories of training ended like that (tool_call.status).",
    "1",
    "no call of a tool was recorded",
    by=("tool", "status"),
)
_ERRORS: Final = Definition(
    "tools.error",
    "calls that raised",
    "How many calls of a tool by trajectories of training an exception of that type ended"
    " (tool_call.error).",
    "1",
    "no call of a tool was recorded",
    by=("tool", "error"),
)
_QUANTITIES: Final = (_CALL_S, _TRAJECTORY_S, _QUERIES)
DEFINITIONS: Final = (
    *_CALLS.definitions, *(one for each in _QUANTITIES for one in each.definitions), _SHARE,
    _STATUS, _ERRORS,
)  # fmt: skip
SERIES: Final = (_CALLS.series, *(each.series for each in _QUANTITIES if each.by_step))
TABLES: Final = _CALLS.tables


def tools(tables: Tables) -> Chapter:
    """What tools take."""
    found = Found("tools", "Tools")
    found.notes += prepare(tables)
    _CALLS.ask(tables, found)
    if not tables.sql.execute(_SQL["count"]).fetchall()[0][0]:
        return found.chapter()
    for quantity in _QUANTITIES:
        ask(tables, found, quantity)
    answer = query(tables, _SQL["trajectory_share"])
    found.add(_SHARE.of(answer.row[0], answer))
    for one, column in ((_STATUS, "status"), (_ERRORS, "error")):
        _count(tables, found, one, column)
    return found.chapter()


def _count(tables: Tables, found: Found, one: Definition, column: str) -> None:
    what = "coalesce(status, '(unknown)')" if column == "status" else column
    answer = query(tables, fill(_SQL["outcomes"], what=what))
    for told in answer.dicts:
        found.add(
            one.of(
                told["count"],
                answer,
                evidence=evidence_of(trajectory=told["trajectories"]),
                by={"tool": told["tool"], column: told["what"]},
            )
        )
