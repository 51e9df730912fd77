"""A cause of lost GPU time: what it is, what it costs, what says so; and values in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rlvr_probe.analysis.results import Evidence, Queried
from rlvr_probe.analysis.statements import read_texts

__all__ = [
    "HAPPENED",
    "HELPS",
    "KINDS",
    "REFUTED",
    "Cause",
    "Saving",
    "is_early",
    "per_cent",
    "placed",
    "seconds",
    "times",
    "whom",
]

HAPPENED: Final = ("unfinished",)
"""Kinds that happen once: how much steps differ says nothing of how sure they are."""

_LEAST: Final = 3
"""Fewest steps that show how much steps differ."""

_SURE: Final = 1.96
"""Standard deviations on either side of a 95 % interval."""


def is_early(steps: int) -> bool:
    """Whether so many steps are too few to show how much they differ."""
    return steps < _LEAST


@dataclass(frozen=True, slots=True)
class Saving:
    """Wall time that a run without the cause would have saved, ns.

    Steps are a sample: how much they differ says how sure their sum is. What is known only for the
    run as a whole has no step and no interval.

    Attributes:
        by_step: By ``step_id``; empty where it is known only for the run as a whole.
        whole_ns: Of all steps together, in that case; else None.
    """

    by_step: Mapping[int, float] = field(default_factory=dict)
    whole_ns: float | None = None

    @classmethod
    def of(cls, rows: Iterable[Sequence[Any]]) -> Saving:
        """The saving of rows that start with ``step_id`` and time; unknown time saves nothing."""
        return cls({row[0]: float(row[1]) for row in rows if None not in row[:2]})

    @property
    def wall_ns(self) -> float:
        """Of all steps together."""
        return math.fsum(self.by_step.values()) if self.whole_ns is None else self.whole_ns

    @property
    def error_ns(self) -> float | None:
        """Half of the 95 % interval of :attr:`wall_ns`; None of fewer than three steps."""
        count = len(self.by_step)
        if count < _LEAST:
            return None
        mean = self.wall_ns / count
        variance = math.fsum((value - mean) ** 2 for value in self.by_step.values()) / (count - 1)
        return _SURE * math.sqrt(count * variance)

    def no_interval(self, steps: int) -> str:
        """Why a run of so many steps has no interval; empty if it has one."""
        if self.error_ns is not None or not self.wall_ns:
            return ""
        if self.whole_ns is not None:
            return "it is known of the run as a whole alone"
        whose, count = (
            ("the run has", steps) if is_early(steps) else ("it is of", len(self.by_step))
        )
        return f"{whose} {count} step{'' if count == 1 else 's'}, and it takes {_LEAST}"

    @property
    def worst_steps(self) -> Sequence[int]:
        """``step_id`` of those that lost time, most first."""
        cost = [step for step, ns in self.by_step.items() if ns > 0]
        return sorted(cost, key=lambda step: (-self.by_step[step], step))


@dataclass(frozen=True, slots=True)
class Cause(Queried):
    """One cause of lost GPU time, with what it costs and what says so.

    Attributes:
        kind: One of :data:`~rlvr_probe.analysis.causes.cause.KINDS`.
        title: What is wrong, where, and what it costs: one sentence.
        gpu_s: GPU time that a run without it would have saved, s: GPUs times wall time.
        share: The same as a share of the GPU time of the run, 0..1.
        low, high: 95 % interval of ``gpu_s``, from how much steps differ; None where a few steps
            are all there is, or where it is known of the run as a whole alone.
        confidence: How likely this kind is right once it is named first, by the judged recordings,
            0..1; None of a kind that was first in none of them.
        where: The place: ``rank`` (``process`` where that is not known), ``device`` (its UUID),
            ``engine``, ``function``, ``tool``, ``stage``, ``host``, ``step``, ``batch``, ``group``,
            ``sample``.
        evidence: Ids behind it by kind: ``step`` (step_id), ``trajectory``, ``process``,
            ``device``; a kind of which there are none is absent.
        worst: Worst cases, most expensive first: sentences; none where no step is known to be one.
        usually_helps: What to try.
        refuted_by: What to look at that would show it wrong.
        query: The SQL that made the size of it.
        no_interval: Why there is no interval; empty if there is one.
        early: Whether the run has too few steps for any, so that it may be chance.
        natural: Whether it belongs to the workload: no fault, and ranked behind all others.
    """

    kind: str
    title: str
    gpu_s: float
    share: float
    low: float | None
    high: float | None
    confidence: float | None
    where: Mapping[str, str | int]
    evidence: Mapping[str, Evidence]
    worst: tuple[str, ...]
    usually_helps: str
    refuted_by: str
    query: str
    no_interval: str = ""
    early: bool = False
    natural: bool = False


_NAMED: Final = 3
"""Processes that are named one by one."""

_TEXTS: Final = read_texts(__name__, "kinds.ini")

KINDS: Final = tuple(_TEXTS)
"""Everything that may be named."""

HELPS: Final = {kind: texts["helps"] for kind, texts in _TEXTS.items()}
"""What usually helps, by kind."""

REFUTED: Final = {kind: texts["refuted"] for kind, texts in _TEXTS.items()}
"""What would refute it, by kind."""


def per_cent(share: float) -> str:
    """A share in words."""
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


def placed(rank: int | None, team: str, process: int) -> tuple[str, dict[str, str | int]]:
    """A rank in words, and as the place of a cause.

    Args:
        rank: Its number in its group; None where that is not known.
        team: That group, where several have methods of one name; else empty.
        process: Its number among the processes.
    """
    kind, number = ("process", process) if rank is None else ("rank", rank)
    if not team:
        return f"{kind} {number}", {kind: number}
    return f"{kind} {number} of {team}", {kind: number, "worker_group": team}


def whom(rows: Iterable[Mapping[str, Any]]) -> str:
    """Processes in words, the first three of them: by ``rank``, or by ``role`` and ``process``."""
    names = dict.fromkeys(
        f"{row['role'] or 'process'} {row['process']}" if row["rank"] is None
        else f"rank {row['rank']}"
        for row in rows
    )  # fmt: skip
    more = len(names) - _NAMED
    return " and ".join([*names][:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def seconds(ns: float) -> str:
    """A duration in words; ``ns`` in ns."""
    value = ns / 1e9
    if value < 10:
        return f"{value:.2g} s" if value < 1 else f"{value:.1f} s"
    return f"{value:,.0f} s"


def times(factor: float) -> str:
    """A factor in words."""
    return f"{factor:.2f}x" if factor < 1.2 else f"{factor:.1f}x"
