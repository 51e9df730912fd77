"""What the ledger counts the time of: GPUs, or ranks where no GPU is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["GPU", "Unit", "unit_of"]

_SQL: Final = statements(__name__)


@dataclass(frozen=True, slots=True)
class Unit:
    """The name of what has the time.

    Attributes:
        name: ``GPU`` or ``rank``; its time is in ``GPU-s`` or ``rank-s``.
        several: What some of them are: ranks of a training alone, or also what stands beside it.
    """

    name: str
    several: str

    def say(self, text: str) -> str:
        """A sentence or a unit that is about GPUs, about what stands for them."""
        return text.replace("GPU", self.name)

    def count(self, number: int) -> str:
        """That many of them."""
        return f"1 {self.name}" if number == 1 else f"{number:,} {self.several}"


GPU: Final = Unit("GPU", "GPUs")


def unit_of(tables: Tables) -> Unit:
    """Of the ledger of these tables: ranks, and engines, stand for GPUs where none is known."""
    if not tables.has("gpu"):
        return GPU
    [[count, known, ranks]] = tables.sql.execute(_SQL["unit"]).fetchall()
    if known or not count:
        return GPU
    return Unit("rank", "ranks" if ranks == count else "ranks or engines")
