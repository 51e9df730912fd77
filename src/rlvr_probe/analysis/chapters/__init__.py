"""Chapters: what a run says of lengths, slots, imbalance, rewards, tools, data and devices.

Each module is a chapter or a part of one, and makes figures of the tables, each by one query. What
there is of each is in its ``DEFINITIONS`` and ``SERIES``, which the documentation is made from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rlvr_probe.analysis.chapters import (
    asynchronous,
    devices,
    flight,
    imbalance,
    integrals,
    ledger,
    lengths,
    movement,
    occupancy,
    rewards,
    samples,
    tools,
)
from rlvr_probe.analysis.chapters.definitions import Definition, SeriesDefinition
from rlvr_probe.analysis.figures import Chapter, ChapterMaker
from rlvr_probe.recording.tables import Tables

__all__ = ["CHAPTERS", "DEFINITIONS", "DERIVED", "SERIES", "make_chapters"]

CHAPTERS: Final[dict[str, ChapterMaker]] = {
    "ledger": ledger.ledger,
    "lengths": lengths.lengths,
    "occupancy": occupancy.occupancy,
    "imbalance": imbalance.imbalance,
    "rewards": rewards.rewards,
    "tools": tools.tools,
    "movement": movement.movement,
    "devices": devices.devices,
    "asynchronous": asynchronous.asynchronous,
}
"""By name, in the order of the report."""

_MODULES: Final = (
    ledger, lengths, occupancy, imbalance, rewards, tools, movement, devices, asynchronous,
)  # fmt: skip
DEFINITIONS: Final[tuple[Definition, ...]] = tuple(
    one for module in _MODULES for one in module.DEFINITIONS
)
"""Every figure that there can be."""

SERIES: Final[tuple[SeriesDefinition, ...]] = tuple(
    one for module in _MODULES for one in module.SERIES
)
"""Every series that there can be."""

DERIVED: Final = {
    **samples.VIEWS,
    **flight.TABLES,
    **imbalance.TABLES,
    **rewards.TABLES,
    **tools.TABLES,
    **integrals.TABLES,
}
"""What chapters make of the tables before they ask: by name, what a row is, and the query."""


def make_chapters(tables: Tables, *, slots: int | None = None) -> Iterator[Chapter]:
    """Every chapter, one after another.

    Args:
        tables: Of a recording or a workload.
        slots: Sequences that one engine decodes at once, where somebody knows.
    """
    for name, chapter in CHAPTERS.items():
        if name == "occupancy":
            yield occupancy.occupancy(tables, slots=slots)
        else:
            yield chapter(tables)
        if name == "imbalance":
            flight.put_away(tables)
