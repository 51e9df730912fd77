"""What rows of a journal hold, checked: one type and one function per kind of row."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from sys import intern
from typing import Any, Final

from rlvr_probe.model import names

__all__ = [
    "BadRow",
    "RewardRow",
    "SessionRow",
    "SpanRow",
    "ToolRow",
    "TrainedRow",
    "TrajectoryRow",
    "TurnRow",
    "checked_id",
    "checked_text",
    "rewards",
    "tool_call",
    "trained",
    "trajectories",
    "turn",
]

_ID_MAX: Final = 1 << 62


class BadRow(ValueError):
    """A row that is JSON, but not a row of the schema."""


@dataclass(frozen=True, slots=True)
class SpanRow:
    """A finished span that is kept."""

    name: str
    start_ns: int
    end_ns: int
    id: int
    parent: int
    error: str | None
    attributes: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A ``session`` event."""

    time_ns: int
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class TrajectoryRow:
    """A ``trajectories`` event: columns of equal length."""

    time_ns: int
    parent: int
    session: int
    step: int
    mode: str
    batch: int
    ordinal: int
    policy_version: int | None
    offset: int
    total: int
    group_size: int
    prompt_tokens: Sequence[int]
    response_tokens: Sequence[int]
    truncated: Sequence[int] | None
    loss_runs: Sequence[Sequence[int]] | None
    spans: Sequence[int] | None
    """Trajectory span of each; None where the batch was generated at once."""
    queue_group: int | None
    """Number in a queue; then ``step`` is 0 until a trainer's ``trained`` event says it."""
    weight_version: int | None


@dataclass(frozen=True, slots=True)
class RewardRow:
    """A ``rewards`` event: columns of equal length."""

    batch: int
    function: str
    index: int
    values: Sequence[float | None]
    verify_s: Sequence[float | None] | None


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A ``turn`` span that tells its trajectories apart: columns of equal length."""

    batch: int
    start_ns: int
    end_ns: int
    rows: Sequence[int] | None
    """None: all of them, in order."""
    turns: Sequence[int]
    prompt_tokens: Sequence[int]
    response_tokens: Sequence[int]
    cached_tokens: Sequence[int] | None


@dataclass(frozen=True, slots=True)
class TrainedRow:
    """A ``trained`` event: groups that one micro step took from a queue."""

    time_ns: int
    session: int
    step: int
    groups: Sequence[int]


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A ``tool_call`` span."""

    batch: int
    start_ns: int
    end_ns: int
    row: int | None
    turn: int | None
    tool: str | None
    status: str | None
    error: str | None


def trajectories(time_ns: int, parent: int, values: Mapping[str, Any]) -> TrajectoryRow:
    """The columns of a batch.

    Raises:
        BadRow, or what a column of other values raises: It breaks the schema.
    """
    prompt_tokens = array("I", values["prompt_tokens"])
    response_tokens = array("I", values["response_tokens"])
    truncated = values.get("truncated")
    mode = values.get("mode", "train")
    offset, total = checked_id(values["offset"], 0), checked_id(values["total"])
    if mode not in names.MODES or len(prompt_tokens) != len(response_tokens):
        raise BadRow("columns")
    if not response_tokens or offset + len(response_tokens) > total:
        raise BadRow("rows")
    queued, version = values.get("queue_group"), values.get("weight_version")
    spans = None if values.get("spans") is None else array("Q", values["spans"])
    if spans is not None and len(spans) != len(response_tokens):
        raise BadRow("columns")
    if truncated is not None:
        # bytes(5) would be five zeros.
        if type(truncated) is not list or len(truncated) != len(response_tokens):
            raise BadRow("columns")
        truncated = bytes(truncated)
    return TrajectoryRow(
        time_ns=time_ns,
        parent=parent,
        session=checked_id(values.get("session", 0), 0),
        step=checked_id(values["step"], 0) if queued is None else 0,
        mode=mode,
        batch=checked_id(values.get("batch", parent), 0),
        ordinal=checked_id(values.get("ordinal", 0), 0),
        policy_version=checked_id(values["policy_version"], 0)
        if "policy_version" in values
        else None,
        offset=offset,
        total=total,
        group_size=checked_id(values["group_size"]),
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
        truncated=truncated,
        loss_runs=_loss_runs(values.get("loss_runs"), response_tokens),
        spans=spans,
        queue_group=None if queued is None else checked_id(queued, 0),
        weight_version=None if version is None else checked_id(version, 0),
    )


def rewards(parent: int, values: Mapping[str, Any]) -> RewardRow:
    """The values of one reward function.

    Raises:
        BadRow, or what a column of other values raises: It breaks the schema.
    """
    verify_s = values.get("verify_s")
    column = _numbers(values["values"])
    times = None if verify_s is None else _numbers(verify_s)
    if times is not None and len(times) != len(column):
        raise BadRow("columns")
    return RewardRow(
        batch=checked_id(values.get("batch", parent), 0),
        function=checked_text(values["function"]),
        index=checked_id(values.get("index", 0), 0),
        values=column,
        verify_s=times,
    )


def trained(time_ns: int, values: Mapping[str, Any]) -> TrainedRow:
    """The groups that a micro step took.

    Raises:
        BadRow, or what a column of other values raises: It breaks the schema.
    """
    return TrainedRow(
        time_ns=time_ns,
        session=checked_id(values.get("session", 0), 0),
        step=checked_id(values["step"], 0),
        groups=_column(values["groups"]),
    )


def turn(start_ns: int, end_ns: int, parent: int, values: Mapping[str, Any]) -> TurnRow | None:
    """An engine call by trajectory; None if it is only known as a whole.

    Raises:
        BadRow, or what a column of other values raises: It breaks the schema.
    """
    index = values.get("turn")
    if index is None:
        return None
    prompt_tokens, response_tokens = (
        _column(values["prompt_tokens"]),
        _column(values["response_tokens"]),
    )
    size = len(prompt_tokens)
    cached = values.get("cached_tokens")
    cached_tokens = None if cached is None else _column(cached)
    turns = array("I", [index]) * size if type(index) is int else _column(index)
    given = values.get("rows")
    rows = None if given is None else _column(given)
    for column in (response_tokens, cached_tokens, turns, rows):
        if column is not None and len(column) != size:
            raise BadRow("columns")
    if not size or (rows is not None and any(a >= b for a, b in pairwise(rows))):
        raise BadRow("rows")
    return TurnRow(
        batch=checked_id(values.get("batch", parent), 0),
        start_ns=start_ns,
        end_ns=end_ns,
        rows=rows,
        turns=turns,
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
        cached_tokens=cached_tokens,
    )


def tool_call(
    start_ns: int, end_ns: int, parent: int, error: str | None, values: Mapping[str, Any]
) -> ToolRow:
    """A call of a tool.

    Raises:
        BadRow: It breaks the schema.
    """
    tool, status = values.get("tool"), values.get("status")
    if status is not None and status not in names.TOOL_STATUSES:
        raise BadRow("status")
    return ToolRow(
        batch=checked_id(values.get("batch", parent), 0),
        start_ns=start_ns,
        end_ns=end_ns,
        row=checked_id(values["row"], 0) if "row" in values else None,
        turn=checked_id(values["turn"], 0) if "turn" in values else None,
        tool=None if tool is None else intern(checked_text(tool)),
        status=status,
        error=None if error is None else intern(error),
    )


def _loss_runs(given: object, response_tokens: Sequence[int]) -> Sequence[Sequence[int]] | None:
    if given is None:
        return None
    if type(given) is not list or len(given) != len(response_tokens):
        raise BadRow("columns")
    runs = [_column(one) for one in given]
    if any(sum(one) != tokens for one, tokens in zip(runs, response_tokens, strict=True)):
        raise BadRow("loss_runs")
    return runs


def _column(values: object) -> Sequence[int]:
    if type(values) is int:
        return array("I", [values])
    if type(values) is not list:
        raise BadRow("column")
    return array("I", values)


def _numbers(values: object) -> Sequence[float | None]:
    if type(values) is not list:
        raise BadRow("column")
    if None in values:
        for value in values:
            if value is not None and type(value) not in (int, float):
                raise BadRow("column")
        return tuple(values)
    return array("d", values)


def checked_id(value: object, least: int = 1) -> int:
    """``value`` if it is a number from ``least``.

    Raises:
        BadRow: It is not.
    """
    if type(value) is not int or not least <= value < _ID_MAX:
        raise BadRow("number")
    return value


def checked_text(value: object) -> str:
    """``value`` if it is a text.

    Raises:
        BadRow: It is not.
    """
    if type(value) is not str:
        raise BadRow("text")
    return value
