"""Coarse rows of a journal: a type for each kind, by which it is checked, and what no type can say.

Whatever breaks one of them raises one of :data:`~rlvr_probe.recording.decode.UNSOUND`.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import nan
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert

from rlvr_probe.model import names
from rlvr_probe.model.columns import RaggedColumn, SparseColumn, TextColumn
from rlvr_probe.recording.decode import Count, Id, Number

__all__ = [
    "ApplicationRow", "LeftRow", "ProcessRow", "RewardRow", "RpcRow", "SelectedRow", "SessionRow",
    "SpanRow", "StartedRow", "TrainedRow", "TrajectoryRow", "UsedRow", "rewards", "rpc", "selected",
    "trained", "trajectories",
]  # fmt: skip


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
class RpcRow(SpanRow):
    """An ``rpc`` span; what differs from call to call is not among its attributes."""

    call: int
    ranks: int
    rank: int | None
    """None on the caller's side."""

    @property
    def key(self) -> tuple[str, str, int]:
        """Group, method and call, which the caller and the worker each count."""
        attributes = self.attributes
        return str(attributes.get("group", "")), str(attributes.get("method", "")), self.call


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A ``session`` event."""

    time_ns: int
    facts: Mapping[str, object]


class ProcessRow(Struct):
    """A ``process`` event."""

    role: str = ""
    actor: str = ""
    accelerators: list[str] = []
    model_type: str | None = None
    spool_s: Any = None


class StartedRow(Struct):
    """A ``started`` event: an actor that a process asked for."""

    actor: str
    role: str = ""


class LeftRow(Struct):
    """A ``left`` event."""

    since_s: Annotated[float, Meta(ge=0, lt=60)] = 0


class ApplicationRow(Struct):
    """An ``application_span`` event: hex ids of the application's own span around one of ours."""

    trace: Annotated[str, Meta(pattern=r"\A(?!0+\Z)[0-9a-f]{32}\Z")]
    span: Annotated[str, Meta(pattern=r"\A(?!0+\Z)[0-9a-f]{16}\Z")]
    parent: Id


class UsedRow(Struct):
    """A ``devices_used`` event, as the process knew it: names, prefixes of names, or numbers."""

    uuids: Sequence[str]
    how: Literal["torch", "visible"]


class TrainedRow(Struct):
    """A ``trained`` event: groups that one micro step took from a queue."""

    time_ns: int
    step: Number
    groups: Sequence[Count]
    session: Number = 0


class SelectedRow(Struct):
    """A ``selected`` event: names of prompts; of a step, or of a batch that was for a queue."""

    time_ns: int
    step: Number = 0
    session: Number = 0
    batch: Id | None = None
    kept: Sequence[str] | None = None
    used: Sequence[str] | None = None
    discarded: Sequence[str] | None = None
    reason: str | None = None


class TrajectoryRow(Struct):
    """A ``trajectories`` event: columns of equal length.

    Attributes:
        spans: Trajectory span of each; None where the batch was generated at once.
        queue_group: Number in a queue; then ``step`` is 0 until a ``trained`` event says it.
        keys: Of each, where its span may be another process's.
        grows: 1 if more rows of the batch may follow: ``total`` is that of it until here.
        k: Number under which the keys were put away.
    """

    time_ns: int
    parent: int
    batch: Number
    offset: Number
    total: Id
    group_size: Id
    prompt_tokens: Sequence[Count]
    response_tokens: Sequence[Count]
    step: Number = 0
    session: Number = 0
    mode: str = "train"
    ordinal: Number = 0
    policy_version: Number | None = None
    truncated: Sequence[int] | None = None
    loss_runs: Sequence[Any] | None = None
    spans: Sequence[Number] | None = None
    queue_group: Number | None = None
    weight_version: Number | None = None
    keys: Sequence[str | None] | None = None
    groups: Sequence[Count] | None = None
    prompts: Sequence[str] | None = None
    engines: Sequence[Number | None] | None = None
    sources: Sequence[str | None] | None = None
    grows: Any = 0
    k: int | None = None


class RewardRow(Struct):
    """A ``rewards`` event: columns of equal length; ``not_finite`` are places of values."""

    batch: Number
    function: str
    values: Sequence[int | float | None]
    index: Number = 0
    verify_s: Sequence[int | float | None] | None = None
    not_finite: Sequence[int] = ()


class _Rpc(Struct):
    side: Literal["caller", "worker"]
    group: str
    method: str
    ranks: Id
    call: Number
    rank: Any = None


def rpc(
    start_ns: int,
    end_ns: int,
    span: int,
    parent: int,
    error: str | None,
    values: dict[str, Any],
    share: Callable[[dict[str, Any]], dict[str, Any]],
) -> RpcRow:
    """One side of a call of a worker group; ``share`` gives the one dict of equal attributes."""
    row = convert(values, _Rpc)
    rank = convert(row.rank, Number) if row.side == "worker" else None
    _check(rank is None or rank < row.ranks, "rank")
    del values["call"]
    return RpcRow(
        names.RPC.name, start_ns, end_ns, span, parent, error, share(values), row.call, row.ranks,
        rank,
    )  # fmt: skip


def trained(time_ns: int, values: Mapping[str, Any]) -> TrainedRow:
    """The groups that a micro step took."""
    groups = values.get("groups")
    groups = [groups] if type(groups) is int else groups
    row = convert({**values, "time_ns": time_ns, "groups": groups}, TrainedRow)
    row.groups = array("I", row.groups)
    return row


def selected(time_ns: int, values: Mapping[str, Any]) -> SelectedRow:
    """The prompts that were kept, used and discarded."""
    row = convert({**values, "time_ns": time_ns}, SelectedRow)
    _check(row.batch is not None or "step" in values, "step")
    row.step = 0 if row.batch is not None else row.step
    return row


def trajectories(time_ns: int, parent: int, values: Mapping[str, Any]) -> TrajectoryRow:
    """The columns of a batch."""
    row = convert({"batch": parent, **values, "time_ns": time_ns, "parent": parent}, TrajectoryRow)
    size = len(row.response_tokens)
    _check(row.mode in names.MODES, "mode")
    _check(0 < size <= row.total - row.offset, "rows")
    _check(row.queue_group is not None or "step" in values, "step")
    row.step = 0 if row.queue_group is not None else row.step
    number = (row.offset + size - 1) // row.group_size - row.offset // row.group_size + 1
    if row.groups is not None:
        _check(row.offset > 0 or row.groups[:1] == [0], "groups")
        _check(all(0 <= b - a <= 1 for a, b in pairwise(row.groups)), "groups")
        number = len(set(row.groups))
    _check(row.prompts is None or len(row.prompts) == number, "prompts")
    every = (
        row.prompt_tokens, row.truncated, row.loss_runs, row.spans, row.keys, row.groups,
        row.engines, row.sources,
    )  # fmt: skip
    _check(all(column is None or len(column) == size for column in every), "columns")
    row.prompt_tokens = _lengths(row.prompt_tokens)
    row.response_tokens = _lengths(row.response_tokens)
    row.spans = None if row.spans is None else array("Q", row.spans)
    row.truncated = None if row.truncated is None else bytes(row.truncated)
    row.groups = None if row.groups is None else array("I", row.groups)
    row.engines = None if row.engines is None else SparseColumn(row.engines)
    row.prompts = None if row.prompts is None else TextColumn(row.prompts)
    # A million rows have few sources.
    row.sources = row.sources and [name and sys.intern(name) for name in row.sources]
    row.grows = row.grows == 1
    if row.loss_runs is not None:
        runs = [
            array("I", [mask] if type(mask) is int else convert(mask, list[Count]))
            for mask in row.loss_runs
        ]
        _check(list(map(sum, runs)) == list(row.response_tokens), "loss_runs")
        row.loss_runs = RaggedColumn(runs)
    return row


def rewards(parent: int, values: Mapping[str, Any]) -> RewardRow:
    """The values of one reward function, NaN where JSON could not hold what it gave."""
    row = convert({"batch": parent, **values}, RewardRow)
    _check(row.verify_s is None or len(row.verify_s) == len(row.values), "columns")
    column = list(row.values)
    for index in row.not_finite:
        _check(0 <= index < len(column) and column[index] is None, "not_finite")
        column[index] = nan
    row.values = _measured(column)
    row.verify_s = None if row.verify_s is None else _measured(row.verify_s)
    return row


def _lengths(column: Sequence[int]) -> array[int]:
    """Most lengths fit into two bytes; others take four."""
    try:
        return array("H", column)
    except OverflowError:
        return array("I", column)


def _measured(column: Sequence[int | float | None]) -> Sequence[float | None]:
    known = [value for value in column if value is not None]
    return tuple(column) if len(known) < len(column) else array("d", known)


def _check(is_sound: bool, what: str) -> None:
    if not is_sound:
        raise ValueError(what)
