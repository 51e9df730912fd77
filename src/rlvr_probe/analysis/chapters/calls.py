"""Calls of reward functions or tools by name: how long, how many at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from rlvr_probe.analysis.chapters.definitions import (
    Definition,
    Found,
    SeriesDefinition,
    evidence_of,
)
from rlvr_probe.analysis.figures import query
from rlvr_probe.analysis.islands import covered
from rlvr_probe.analysis.statements import fill, make, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["Calls"]

_SQL: Final = statements(__name__)

_MOST: Final = 50
"""Names that figures are made for, those with the most time; all are in the sums."""


_UNCOUNTED: Final = "how many trajectories are in a call was not recorded"


@dataclass(frozen=True, slots=True)
class Calls:
    """Something with a name that is called, for trajectories.

    Attributes:
        id: Beginning of the ids of its figures.
        by: What a name is, for example ``function``.
        what: The calls, with their source, to end a sentence with.
        rows: SQL with columns ``name``, ``unit`` (calls of two units are no part of each other),
            ``step``, ``seconds``, ``start_ns`` and ``end_ns`` (NULL if only the seconds are known),
            ``samples`` (trajectories in it), ``trajectory_id`` and ``process``.
        unknown: Why there is none where the source has nothing for it.
        time: Title of the sum of their durations.
    """

    id: str
    by: str
    what: str
    rows: str
    unknown: str
    time: str = "time"

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """Its figures."""
        named = (
            ("calls", "calls", "How many there are of", "1"),
            ("samples", "trajectories in calls", "Sum of trajectories in", "1"),
            ("time", self.time, "Sum of the durations of", "s"),
            ("share", "share of the time", f"Sum of durations of one {self.by} over that of all of",
             "1"),
            ("per_trajectory", "time for a trajectory", "Sum of durations over trajectories, of",
             "s"),
            ("mean", "mean duration", "Mean duration of", "s"),
            ("p50", "50 % quantile", "Quantile 0.5 by linear interpolation of the duration of",
             "s"),
            ("p90", "90 % quantile", "Quantile 0.9 by linear interpolation of the duration of",
             "s"),
            ("p99", "99 % quantile", "Quantile 0.99 by linear interpolation of the duration of",
             "s"),
            ("min", "shortest", "Smallest duration of", "s"),
            ("max", "longest", "Largest duration of", "s"),
            ("busy", "time with any open", "Length of the union, over batches, of", "s"),
            ("concurrency", "open at a time", "Sum of durations over the length of their union, in"
             " each batch; 1: one after another. Of", "1"),
        )  # fmt: skip
        return tuple(
            Definition(
                f"{self.id}.{name}",
                title,
                f"{meaning} {self.what}; queueing is a part of it.",
                unit,
                self.unknown,
                by=(self.by,),
            )
            for name, title, meaning, unit in named
        )

    @property
    def series(self) -> SeriesDefinition:
        """What there is of each step."""
        return SeriesDefinition(
            f"{self.id}.by_step",
            f"time by step and {self.by}",
            f"Of {self.what}: number, sum and longest of the durations.",
            {"step": "", self.by: "", "calls": "1", "seconds": "s", "longest": "s"},
        )

    @property
    def tables(self) -> dict[str, tuple[str, str]]:
        """What its figures are also made of, by name: what a row is, and the query."""
        what = f"calls by step and {self.by}"
        return {self._table: (what, fill(_SQL["step_times"], rows=self.rows))}

    @property
    def _table(self) -> str:
        return f"{self.by}_time"

    def ask(self, tables: Tables, found: Found) -> list[str | None]:
        """Add the figures of every name, that with the most time first; these names."""
        named = {one.id.rpartition(".")[2]: one for one in self.definitions}
        answer = query(tables, fill(_SQL["by_name"], rows=self.rows))
        if not answer.rows:
            found.add(named["time"].of(None, answer))
            return []
        make(tables, self.tables)
        timed = fill(_SQL["timed"], rows=self.rows)
        parts = {"steps": self._table, "covered": covered(timed, "unit, name")}
        union = query(tables, fill(_SQL["busy"], **parts))
        busy = {name: (length, time) for name, length, time in union.rows}
        for told in answer.dicts[:_MOST]:
            by = {self.by: told["name"] or "(unknown)"}
            behind = evidence_of(
                trajectory=told["longest"], process=dict.fromkeys(told["processes"] or ())
            )
            names = "p50", "p90", "p99"
            quantiles = dict[str, Any](zip(names, told["quantiles"], strict=True))
            for name, one in named.items():
                if name not in ("busy", "concurrency"):
                    value = quantiles.get(name, told.get(name))
                    found.add(one.of(value, answer, why=_UNCOUNTED, evidence=behind, by=by))
            length, time = busy.get(told["name"], (None, None))
            why = "only durations are known, not when a call was"
            found.add(named["busy"].of(length, union, why=why, evidence=behind, by=by))
            at_a_time = time / length if length else None
            found.add(named["concurrency"].of(at_a_time, union, why=why, evidence=behind, by=by))
        if len(answer.rows) > _MOST:
            found.notes.append(f"of {len(answer.rows):,} {self.by}s, {_MOST} have figures")
        steps = query(tables, fill(_SQL["by_step"], by=self.by, steps=self._table))
        found.series.append(self.series.of(steps))
        return [told["name"] for told in answer.dicts[:_MOST]]
