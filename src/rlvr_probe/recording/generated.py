"""Rows of generated batches, checked: their lengths and what reward functions gave them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import nan
from typing import Any

from rlvr_probe.model import names
from rlvr_probe.model.columns import RaggedColumn, SparseColumn
from rlvr_probe.recording.checks import (
    BadRow,
    checked_id,
    checked_text,
    column_of,
    loss_runs_of,
    name_list,
    numbers_of,
)

__all__ = ["RewardRow", "TrajectoryRow", "rewards", "trajectories"]


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
    keys: int | None = None
    """Number under which the key of each was put away, where its span may be another process's."""
    groups: Sequence[int] | None = None
    prompts: Sequence[str] | None = None
    engines: Sequence[int | None] | None = None
    grows: bool = False
    """More rows of the batch may follow: ``total`` is that of it until here."""


@dataclass(frozen=True, slots=True)
class RewardRow:
    """A ``rewards`` event: columns of equal length."""

    batch: int
    function: str
    index: int
    values: Sequence[float | None]
    verify_s: Sequence[float | None] | None


def trajectories(
    time_ns: int,
    parent: int,
    values: Mapping[str, Any],
    keys: Callable[[Sequence[str | None]], int],
) -> TrajectoryRow:
    """The columns of a batch; ``keys`` puts those away that name its trajectories.

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
    group_size = checked_id(values["group_size"])
    groups = _groups(values.get("groups"), len(response_tokens), offset)
    engines = values.get("engines")
    if engines is not None:
        if type(engines) is not list or len(engines) != len(response_tokens):
            raise BadRow("columns")
        engines = SparseColumn(None if one is None else checked_id(one, 0) for one in engines)
    if groups is None:
        number = (offset + len(response_tokens) - 1) // group_size - offset // group_size + 1
    else:
        number = len(set(groups))
    if truncated is not None:
        # bytes(5) would be five zeros.
        if type(truncated) is not list or len(truncated) != len(response_tokens):
            raise BadRow("columns")
        truncated = bytes(truncated)
    named = name_list(values.get("keys"), len(response_tokens), known=False)
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
        group_size=group_size,
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
        truncated=truncated,
        loss_runs=_loss_runs(values.get("loss_runs"), response_tokens),
        spans=spans,
        queue_group=None if queued is None else checked_id(queued, 0),
        weight_version=None if version is None else checked_id(version, 0),
        keys=None if named is None else keys(named),
        groups=groups,
        prompts=name_list(values.get("prompts"), number),
        engines=engines,
        grows=values.get("grows") == 1,
    )


def rewards(parent: int, values: Mapping[str, Any]) -> RewardRow:
    """The values of one reward function.

    Raises:
        BadRow, or what a column of other values raises: It breaks the schema.
    """
    verify_s = values.get("verify_s")
    column = _with_odd(numbers_of(values["values"]), values.get("not_finite"))
    times = None if verify_s is None else numbers_of(verify_s)
    if times is not None and len(times) != len(column):
        raise BadRow("columns")
    return RewardRow(
        batch=checked_id(values.get("batch", parent), 0),
        function=checked_text(values["function"]),
        index=checked_id(values.get("index", 0), 0),
        values=column,
        verify_s=times,
    )


def _with_odd(values: Sequence[float | None], rows: object) -> Sequence[float | None]:
    """Rewards with NaN in the rows of which JSON could not hold what was given."""
    if rows is None:
        return values
    if type(rows) is not list or any(type(row) is not int for row in rows):
        raise BadRow("not_finite")
    found = list(values)
    for row in rows:
        if not 0 <= row < len(found) or found[row] is not None:
            raise BadRow("not_finite")
        found[row] = nan
    return tuple(found)


def _loss_runs(given: object, response_tokens: Sequence[int]) -> Sequence[Sequence[int]] | None:
    if given is None:
        return None
    if type(given) is not list or len(given) != len(response_tokens):
        raise BadRow("columns")
    return RaggedColumn(map(loss_runs_of, given, response_tokens))


def _groups(given: object, rows: int, offset: int) -> Sequence[int] | None:
    """Group of each row: one after the other, from 0 or where the shard before it ended."""
    if given is None:
        return None
    groups = column_of(given)
    if len(groups) != rows or (not offset and groups[0]):
        raise BadRow("groups")
    if any(not 0 <= b - a <= 1 for a, b in pairwise(groups)):
        raise BadRow("groups")
    return groups
