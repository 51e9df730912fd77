"""Calls of reward functions or tools by name: how long, how many at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from rlvr_probe.analysis.intervals import covered
from rlvr_probe.analysis.metrics.registry import FAMILIES
from rlvr_probe.analysis.metrics.section import Section, evidence_of
from rlvr_probe.analysis.statements import fill, make, statements

__all__ = ["Calls"]

_SQL: Final = statements(__name__)

_MOST: Final = 50
"""Names that have metrics, those with the most time; all are in the sums."""

_UNCOUNTED: Final = "how many trajectories are in a call was not recorded"
_UNPLACED: Final = "only durations are known, not when a call was"


@dataclass(frozen=True, slots=True)
class Calls:
    """Something with a name that is called, for trajectories.

    Attributes:
        name: What a name is, ``function`` or ``tool``; its metrics have ids that start with it.
        rows: SQL with columns ``name``, ``unit`` (the time of calls adds up between units),
            ``step``, ``seconds``, ``start_ns`` and ``end_ns`` (NULL if only the seconds are known),
            ``samples`` (trajectories in it), ``trajectory_id`` and ``process``.
    """

    name: str
    rows: str

    @property
    def tables(self) -> dict[str, tuple[str, str]]:
        """What its metrics are also made of, by name: what a row is, and the query."""
        what = f"calls by step and {self.name}"
        return {f"{self.name}_time": (what, fill(_SQL["step_times"], rows=self.rows))}

    def add(self, section: Section) -> list[str | None]:
        """Add the metrics of every name, that with the most time first; these names."""
        name = self.name
        answer = section.ask(fill(_SQL["by_name"], rows=self.rows))
        if not answer.rows:
            section.add(f"{name}.time", None, answer)
            return []
        make(section.tables, self.tables)
        timed = covered(fill(_SQL["timed"], rows=self.rows), "unit, name")
        union = section.ask(fill(_SQL["busy"], steps=f"{name}_time", covered=timed))
        busy = {who: (length, time) for who, length, time in union.rows}
        for row in answer.dicts[:_MOST]:
            by = {name: row["name"] or "(unknown)"}
            evidence = evidence_of(
                trajectory=row["longest"], process=dict.fromkeys(row["processes"] or ())
            )
            quantiles = zip(("p50", "p90", "p99"), row["quantiles"], strict=True)
            values: dict[str, Any] = {**row, **dict(quantiles)}
            length, time = busy.get(row["name"], (None, None))
            union_of = {"busy": length, "concurrency": time / length if length else None}
            for key in FAMILIES[f"{section.name}.{name}"].metrics:
                value, source, why = (
                    (union_of[key], union, _UNPLACED)
                    if key in union_of
                    else (values[key], answer, _UNCOUNTED)
                )
                section.add(f"{name}.{key}", value, source, why=why, evidence=evidence, by=by)
        if len(answer.rows) > _MOST:
            section.notes.append(f"{_MOST} of {len(answer.rows):,} {name}s have metrics")
        steps = section.ask(fill(_SQL["by_step"], by=name, steps=f"{name}_time"))
        section.add_series(f"{name}.by_step", steps)
        return [row["name"] for row in answer.dicts[:_MOST]]
