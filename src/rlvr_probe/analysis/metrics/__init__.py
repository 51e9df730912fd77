"""Metrics: what a run says of lengths, slots, imbalance, rewards, tools, data and devices.

Each module is a section, and makes metrics of the tables, each by one query. What there is of each
is in ``registry.ini``, which the documentation is made from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from rlvr_probe.analysis import samples
from rlvr_probe.analysis.metrics import (
    asynchronous,
    devices,
    imbalance,
    ledger,
    lengths,
    movement,
    occupancy,
    rewards,
    signal,
    sources,
    tools,
)
from rlvr_probe.analysis.results import Chapter, ChapterMaker
from rlvr_probe.recording.tables import Tables

__all__ = ["CHAPTERS", "DERIVED", "make_chapters"]

CHAPTERS: Final[dict[str, ChapterMaker]] = {
    "ledger": ledger.ledger,
    "lengths": lengths.lengths,
    "occupancy": occupancy.occupancy,
    "imbalance": imbalance.imbalance,
    "rewards": rewards.rewards,
    "signal": signal.signal,
    "tools": tools.tools,
    "movement": movement.movement,
    "devices": devices.devices,
    "asynchronous": asynchronous.asynchronous,
}
"""By name, in the order of the report."""

DERIVED: Final = {
    **samples.SAMPLES,
    **lengths.TABLES,
    **occupancy.TABLES,
    **imbalance.TABLES,
    **rewards.TABLES,
    **signal.TABLES,
    **sources.TABLES,
    **tools.TABLES,
    **devices.TABLES,
}
"""What is made of the tables before metrics are asked for: what a row is, and the query."""


def make_chapters(
    tables: Tables, *, slots: int | None = None, names: Collection[str] = CHAPTERS
) -> Iterator[Chapter]:
    """Sections, one after another.

    Args:
        tables: Of a recording or a workload.
        slots: Sequences that one engine decodes at once, where that is known.
        names: Which of them; ``imbalance`` with ``occupancy``, whose tables it asks.
    """
    for name, chapter in CHAPTERS.items():
        if name not in names:
            continue
        if name == "occupancy":
            yield occupancy.occupancy(tables, slots=slots)
        else:
            yield chapter(tables)
        if name == "imbalance":
            occupancy.put_away(tables)
