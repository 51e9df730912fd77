"""Events about the trajectories of a batch: lengths, rewards, and what a filter dropped."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe import guard
from rlvr_probe.adapter.contract import Probe
from rlvr_probe.model.names import REWARDS, ROLLOUT, TRAJECTORIES
from rlvr_probe.reading import rewards, word

__all__ = ["Batch", "Groups", "emit_rewards", "emit_trajectories", "known", "sources", "stand_in"]


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``values`` that are known."""
    return {name: value for name, value in values.items() if value is not None}


def emit_trajectories(probe: Probe, span: int | None, values: Mapping[str, Any]) -> None:
    """Record the trajectories of a batch.

    Args:
        probe: To record with.
        span: Its rollout span, which is the parent of the event; None for the current one, 0 for
            none.
        values: Attributes of ``names.TRAJECTORIES``, None for what is unknown.
    """
    probe.emit(TRAJECTORIES, known(values), parent=span)


def emit_rewards(
    probe: Probe,
    batch: int | None,
    function: str | None,
    values: Sequence[float | None] | None,
    *,
    index: int = 0,
    parent: int | None = None,
) -> None:
    """Record what a reward function gave each trajectory of a batch.

    Args:
        probe: To record with.
        batch: Span that joins lengths and rewards.
        function: Name of the function.
        values: By row, None where it gave none; None if that is unknown.
        index: Position of the function.
        parent: Span that the event belongs to; None for ``batch``.
    """
    given = {"batch": batch, "function": function, "index": index, **rewards(values)}
    probe.emit(REWARDS, given, parent=batch if parent is None else parent)


@guard.fail_open("sources", None)
def sources(read: Callable[[str], Iterable[object] | None]) -> list[str | None] | None:
    """The attribute ``sources`` of trajectories: names, cut to 64 characters; None without any.

    Args:
        read: What rows have in a column; asked only where the user named it.
    """
    column = os.environ.get("RLVR_PROBE_SOURCE")
    names = [word(value) for value in (read(column) if column else None) or ()]
    cut = [name and name[:64].encode("utf-8", "replace").decode("utf-8") for name in names]
    return cut if any(cut) else None


@dataclass(frozen=True, slots=True)
class Groups:
    """Which rows of a batch belong to one prompt: those of a prompt follow each other.

    Attributes:
        of_rows: Group of each row, ascending from 0.
        names: Name of each group.
        size: Rows of the largest group.
    """

    of_rows: list[int]
    names: list[Any]
    size: int

    @classmethod
    def by_name(cls, names: Iterable[Hashable]) -> Groups:
        """From the name of the prompt of each row."""
        of_rows, of_groups = list[int](), list[Hashable]()
        for name in names:
            if not of_groups or name != of_groups[-1]:
                of_groups.append(name)
            of_rows.append(len(of_groups) - 1)
        return cls(of_rows, of_groups, max(Counter(of_rows).values(), default=1))

    @property
    def even(self) -> bool:
        """Whether each has as many rows."""
        return all(group == row // self.size for row, group in enumerate(self.of_rows))


@dataclass(slots=True)
class Batch:
    """A batch that is recorded piece by piece, while more of it may come.

    Attributes:
        place: Attributes that place it in its run.
        rows, groups: What was recorded of it.
        size: Of a group, as its first piece has it; None before.
        even: Whether each of its groups has as many trajectories.
    """

    place: dict[str, Any] = field(default_factory=dict)
    rows: int = 0
    groups: int = 0
    size: int | None = None
    even: bool = True

    def add(self, groups: Sequence[int], rows: int, size: int, *, even: bool) -> dict[str, Any]:
        """The next rows; returns the columns that say which rows of the batch those are.

        Args:
            groups: Group of each row that is recorded, ascending, from 0 with each piece.
            rows: How many rows there are, those that are not recorded included.
            size: Of a group.
            even: Whether each group of this piece has as many, and all of them are recorded.
        """
        offset, first = self.rows, self.groups
        numbers = {group: number for number, group in enumerate(dict.fromkeys(groups), first)}
        self.size = size if self.size is None else self.size
        self.even = self.even and even and size == self.size
        self.rows, self.groups = offset + rows, first + len(numbers)
        return {
            "offset": offset,
            "total": self.rows,
            "group_size": self.size,
            "groups": None if self.even else [numbers[group] for group in groups],
        }

    def emit(self, probe: Probe, span: int | None, columns: Mapping[str, Any], more: bool) -> None:
        """Record the next rows.

        Args:
            probe: To record with.
            span: Rollout span; what has the rollout's times is one piece, the last.
            columns: What is known of each row.
            more: Whether more rows may follow.
        """
        values = {**self.place, "batch": span, "grows": 1 if more else None, **columns}
        emit_trajectories(probe, 0 if more else span, values)


def stand_in(probe: Probe) -> int:
    """Id that stands for the rollout of a piece that is not the last: no span has it."""
    span = probe.begin(ROLLOUT)
    probe.drop(span)
    return span
