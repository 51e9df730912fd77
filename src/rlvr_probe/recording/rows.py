"""What rows of a journal hold, checked: one type and one function per kind of row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_probe.model import names
from rlvr_probe.recording.checks import BadRow, checked_id, checked_text, column_of, name_list

__all__ = [
    "RpcRow",
    "SelectedRow",
    "SessionRow",
    "SpanRow",
    "TrainedRow",
    "belongs_nowhere",
    "rpc",
    "selected",
    "trained",
]


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
        given = self.attributes
        return str(given.get("group", "")), str(given.get("method", "")), self.call


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A ``session`` event."""

    time_ns: int
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class TrainedRow:
    """A ``trained`` event: groups that one micro step took from a queue."""

    time_ns: int
    session: int
    step: int
    groups: Sequence[int]


@dataclass(frozen=True, slots=True)
class SelectedRow:
    """A ``selected`` event: names of prompts; of a step, or of a batch that was for a queue."""

    time_ns: int
    session: int
    step: int
    batch: int | None
    kept: Sequence[str] | None
    used: Sequence[str] | None
    discarded: Sequence[str] | None
    reason: str | None


def belongs_nowhere(name: str, parent: int, attributes: Mapping[str, Any]) -> bool:
    """Whether a call of a reward function belongs to no batch of its process.

    Where a process verifies for others, one by one, there can be a million.
    """
    return (
        name == names.REWARD_FN.name
        and not parent
        and "batch" not in attributes
        and "step" not in attributes
    )


def rpc(
    start_ns: int, end_ns: int, span: int, parent: int, error: str | None, values: dict[str, Any]
) -> RpcRow:
    """One side of a call of a worker group.

    Raises:
        BadRow: It breaks the schema.
    """
    side = values["side"]
    if side not in ("caller", "worker"):
        raise BadRow("side")
    checked_text(values["group"])
    checked_text(values["method"])
    ranks = checked_id(values["ranks"])
    rank = checked_id(values["rank"], 0) if side == "worker" else None
    if rank is not None and rank >= ranks:
        raise BadRow("rank")
    call = checked_id(values.pop("call"), 0)
    return RpcRow(names.RPC.name, start_ns, end_ns, span, parent, error, values, call, ranks, rank)


def trained(time_ns: int, values: Mapping[str, Any]) -> TrainedRow:
    """The groups that a micro step took.

    Raises:
        BadRow, or what a column of other values raises: It breaks the schema.
    """
    return TrainedRow(
        time_ns=time_ns,
        session=checked_id(values.get("session", 0), 0),
        step=checked_id(values["step"], 0),
        groups=column_of(values["groups"]),
    )


def selected(time_ns: int, values: Mapping[str, Any]) -> SelectedRow:
    """The prompts that were kept, used and discarded.

    Raises:
        BadRow: It breaks the schema.
    """
    reason, batch = values.get("reason"), values.get("batch")
    return SelectedRow(
        time_ns=time_ns,
        session=checked_id(values.get("session", 0), 0),
        step=checked_id(values["step"], 0) if batch is None else 0,
        batch=None if batch is None else checked_id(batch),
        kept=name_list(values.get("kept")),
        used=name_list(values.get("used")),
        discarded=name_list(values.get("discarded")),
        reason=None if reason is None else checked_text(reason),
    )
