"""What chapters say, by the ids of figures and series, for tests that ask for single ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_probe.analysis.results import Chapter, Figure, Series

__all__ = ["Said", "decoded", "said"]


@dataclass(frozen=True)
class Said:
    """Figures by id and what they are the value for, and series by id."""

    figures: Mapping[tuple[str, tuple[tuple[str, str | int], ...]], Figure]
    series: Mapping[str, Series]
    notes: tuple[str, ...]

    def figure(self, name: str, **by: str | int) -> Figure:
        """One figure."""
        return self.figures[name, tuple(by.items())]

    def value(self, name: str, **by: str | int) -> Any:
        """The value of one figure."""
        return self.figure(name, **by).value

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of one series by column."""
        one = self.series[name]
        return [dict(zip(one.columns, row, strict=True)) for row in one.rows]

    def spread(self, name: str, plus: float = 0.0) -> dict[str, float]:
        """A quantity in the shape of PolyTrace's statistics, each value that much larger."""
        names = ("min", "mean", "p50", "p90", "p99", "max")
        found = {one: self.value(f"{name}.{one}") + plus for one in names}
        return {"n": self.value(f"{name}.count"), **found}


def decoded(batches: Iterable[Sequence[int]]) -> float:
    """Share of slots in use, counted: a token of every response that goes on, then the next."""
    used = room = 0
    for lengths in batches:
        going = list(lengths)
        while going := [left for left in going if left]:
            used += len(going)
            room += len(lengths)
            going = [left - 1 for left in going]
    return used / room


def said(chapters: Iterable[Chapter]) -> Said:
    """All that these chapters say."""
    told = list(chapters)
    figures = {(one.id, tuple(one.by.items())): one for chapter in told for one in chapter.figures}
    assert len(figures) == sum(len(chapter.figures) for chapter in told), "a figure is there twice"
    series = {one.id: one for chapter in told for one in chapter.series}
    return Said(figures, series, tuple(note for chapter in told for note in chapter.notes))
