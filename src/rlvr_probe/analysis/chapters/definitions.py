"""What a figure is before it has a value: its name, what it means, and in which unit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from rlvr_probe.analysis.figures import Answer, Chapter, Evidence, Figure, Series
from rlvr_probe.analysis.ledger.unit import GPU, Unit

__all__ = ["MOST_ROWS", "Definition", "Found", "SeriesDefinition", "evidence_of"]

MOST_ROWS: Final = 2_000
"""Rows that a series shows; of more, every k-th."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A figure as the documentation has it.

    Attributes:
        id: Stable, for example ``lengths.response.p99``.
        title: A few words.
        meaning: One sentence: formula and source.
        unit: As that of :class:`~rlvr_probe.analysis.figures.Figure`.
        unknown: Why there is none where the source has nothing for it.
        by: Names of what there is one of each for.
        quantity: What it tells the distribution of, where it is one of the figures that do.
    """

    id: str
    title: str
    meaning: str
    unit: str
    unknown: str = "nothing of it was recorded"
    by: tuple[str, ...] = ()
    quantity: str = ""

    def of(
        self,
        value: float | int | str | None,
        answer: Answer | None = None,
        *,
        low: float | None = None,
        high: float | None = None,
        why: str = "",
        evidence: Mapping[str, Evidence] | None = None,
        by: Mapping[str, str | int] | None = None,
    ) -> Figure:
        """The figure, with a value or the reason why there is none."""
        value = number_of(value)
        return Figure(
            id=self.id,
            title=self.title,
            meaning=self.meaning,
            unit=self.unit,
            value=value,
            why="" if value is not None else why or self.unknown,
            low=None if value is None else number_of(low),
            high=None if value is None else number_of(high),
            query="" if answer is None else answer.query,
            inputs=() if answer is None else answer.inputs,
            evidence=evidence or {},
            by=by or {},
        )


@dataclass(frozen=True, slots=True)
class SeriesDefinition:
    """A series as the documentation has it.

    Attributes:
        units: Unit of each column, by name, in the order of the query; empty for what has none.
    """

    id: str
    title: str
    meaning: str
    units: Mapping[str, str]

    def of(self, answer: Answer, total: int | None = None) -> Series:
        """The series, of many rows every k-th.

        Args:
            answer: Its rows.
            total: How many there are, where the query gave some of them.

        Raises:
            ValueError: The query has other columns than these.
        """
        if answer.columns != tuple(self.units):
            raise ValueError(f"{self.id}: found {answer.columns}, expected {tuple(self.units)}")
        every = math.ceil(len(answer.rows) / MOST_ROWS) or 1
        return Series(
            id=self.id,
            title=self.title,
            meaning=self.meaning,
            units=self.units,
            rows=tuple(tuple(map(_told, row)) for row in answer.rows[::every]),
            total=len(answer.rows) if total is None else total,
            query=answer.query,
            inputs=answer.inputs,
        )


class Found:
    """Gathers what a chapter found."""

    def __init__(self, name: str, title: str, unit: Unit = GPU) -> None:
        """Begin a chapter; ``unit`` is what stands in it for a GPU."""
        self._name, self._title, self._unit = name, title, unit
        self.figures = list[Figure]()
        self.series = list[Series]()
        self.notes = list[str]()

    def add(self, *figures: Figure) -> None:
        """Take figures."""
        self.figures += figures

    def chapter(self) -> Chapter:
        """All of it."""
        say = self._unit.say
        return Chapter(
            self._name,
            say(self._title),
            tuple(
                replace(one, title=say(one.title), meaning=say(one.meaning), unit=say(one.unit))
                for one in self.figures
            ),
            tuple(dict.fromkeys(self.notes)),
            tuple(
                replace(
                    one, title=say(one.title), meaning=say(one.meaning),
                    units={name: say(unit) for name, unit in one.units.items()},
                )
                for one in self.series
            ),
        )  # fmt: skip


def evidence_of(**ids: Iterable[int | None] | None) -> dict[str, Evidence]:
    """Ids by kind, those that there are."""
    found = {kind: list(told or ()) for kind, told in ids.items()}
    known = {kind: [one for one in told if one is not None] for kind, told in found.items()}
    return {kind: Evidence.of(told) for kind, told in known.items() if told}


def number_of(value: Any) -> Any:
    """``value``; None for what is no number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _told(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else number_of(value)
