"""Gathers the metrics of one section."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rlvr_probe.analysis.ledger.ledger import GPU, Unit
from rlvr_probe.analysis.metrics.registry import DEFINITIONS, SERIES
from rlvr_probe.analysis.results import Answer, Chapter, Evidence, Figure, Series, query
from rlvr_probe.analysis.samples import prepare
from rlvr_probe.recording.tables import Tables

__all__ = ["ALIKE", "MOST_ROWS", "Section", "evidence_of"]

MOST_ROWS: Final = 2_000
"""Rows that a series shows; of more, every k-th."""

ALIKE: Final = "a workload does not distinguish a reward that is NaN or infinite from none"
"""Why it is unknown how many rewards are either of them."""


class Section:
    """Gathers the metrics that answer one question.

    Attributes:
        name: Stable; the ids of its metrics start with it.
        tables: What it asks.
        notes: Sentences on what the source does not have.
    """

    def __init__(self, tables: Tables, name: str, title: str, unit: Unit = GPU) -> None:
        """Start a section; ``unit`` is what stands in it for a GPU."""
        self.tables = tables
        self.notes = list[str]()
        self.name = name
        self._title, self._unit = title, unit
        self._metrics = list[Figure]()
        self._series = list[Series]()

    @classmethod
    def of_samples(cls, tables: Tables, name: str, title: str) -> Section:
        """Start a section on trajectories, whose views are made; notes say what these omit."""
        section = cls(tables, name, title)
        section.notes += prepare(tables)
        return section

    def ask(self, sql: str, **values: object) -> Answer:
        """As :func:`rlvr_probe.analysis.results.query`."""
        return query(self.tables, sql, **values)

    def add(
        self,
        name: str,
        value: Any,
        answer: Answer | None = None,
        *,
        low: float | None = None,
        high: float | None = None,
        why: str = "",
        evidence: Mapping[str, Evidence] | None = None,
        by: Mapping[str, str | int] | None = None,
    ) -> None:
        """Add a metric, with a value or the reason why there is none.

        Args:
            name: Its id after that of the section.
            value: A number; None, or not a number, if unknown.
            answer: What it is from.
            low: Low end of its interval.
            high: High end of it.
            why: Why it is unknown, where that is another reason than usual.
            evidence: Ids behind it.
            by: What it is the value for.
        """
        definition, say = DEFINITIONS[f"{self.name}.{name}"], self._unit.say
        value = _finite(value)
        self._metrics.append(
            Figure(
                id=definition.id,
                title=say(definition.title),
                meaning=say(definition.meaning),
                unit=say(definition.unit),
                value=value,
                why="" if value is not None else why or definition.unknown,
                low=None if value is None else _finite(low),
                high=None if value is None else _finite(high),
                query="" if answer is None else answer.query,
                evidence=evidence or {},
                by=by or {},
            )
        )

    def add_series(self, name: str, answer: Answer, total: int | None = None) -> None:
        """Add a series, of many rows every k-th.

        Args:
            name: Its id after that of the section.
            answer: Its rows.
            total: How many there are, where the query gave some of them.

        Raises:
            ValueError: The query has other columns than the series.
        """
        series, say = SERIES[f"{self.name}.{name}"], self._unit.say
        if answer.columns != tuple(series.units):
            raise ValueError(f"{series.id}: found {answer.columns}, expected {tuple(series.units)}")
        every = math.ceil(len(answer.rows) / MOST_ROWS) or 1
        self._series.append(
            Series(
                id=series.id,
                title=say(series.title),
                meaning=say(series.meaning),
                units={column: say(unit) for column, unit in series.units.items()},
                rows=tuple(tuple(map(_shown, row)) for row in answer.rows[::every]),
                total=len(answer.rows) if total is None else total,
                query=answer.query,
            )
        )

    def chapter(self) -> Chapter:
        """All of it."""
        title, notes = self._unit.say(self._title), tuple(dict.fromkeys(self.notes))
        return Chapter(self.name, title, tuple(self._metrics), notes, tuple(self._series))


def evidence_of(**ids: Iterable[int | None] | None) -> dict[str, Evidence]:
    """Ids by kind, those that are known."""
    known = {
        kind: [number for number in numbers or () if number is not None]
        for kind, numbers in ids.items()
    }
    return {kind: Evidence.of(numbers) for kind, numbers in known.items() if numbers}


def _finite(value: Any) -> Any:
    """``value``; None for what is not a number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shown(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else _finite(value)
