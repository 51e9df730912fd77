"""Sequences in flight over the rollout of a batch, in pieces of time, from the times of turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rlvr_probe.analysis.figures import query
from rlvr_probe.analysis.statements import make, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["BINS", "RUN_BINS", "TABLES", "Flight", "observe", "observed", "put_away"]

_SQL: Final = statements(__name__)

BINS: Final = 256
"""Pieces of the rollout of a batch: shares of time are as exact as one of them."""

RUN_BINS: Final = 8_192
"""Pieces of the whole run, where trajectories are generated for a queue."""

_NAMES: Final = ("decode", "rollout", "flight")


def _derived(engine: str) -> dict[str, tuple[str, str]]:
    return _SQL.derived(*_NAMES, bins=BINS, run_bins=RUN_BINS, each_engine=engine)


TABLES: Final = _derived("each_engine")
"""By name: what a row is, and the query that makes it."""


@dataclass(frozen=True, slots=True)
class Flight:
    """What can be told of the slots.

    Attributes:
        rollouts: How many are known.
        slots: Of one engine; None if that is not known.
        total: Slots of all engines, or the most sequences that were ever in flight.
    """

    rollouts: int
    slots: int | None
    total: float


def observe(tables: Tables, slots: int | None) -> Flight:
    """Make the tables of :data:`TABLES`.

    Args:
        tables: With the views of :mod:`rlvr_probe.analysis.chapters.samples`.
        slots: Sequences that an engine decodes at once, where that is known; what is in flight
            beyond them waits in its queue.
    """
    if _is_away(tables):
        tables.sql.execute("DROP VIEW decode")
    make(tables, _derived("0" if slots is None else "engine"))
    if slots is not None:
        tables.sql.execute(_SQL["beyond_slots"], {"slots": slots})
        tables.sql.execute(_SQL["slot_time"])
    [(rollouts, engines, peak)] = query(tables, _SQL["seen"]).rows
    return Flight(rollouts, slots, float(peak or 0) if slots is None else float(slots * engines))


def put_away(tables: Tables) -> None:
    """Keep of ``decode``, the largest of them with a row for every turn, only how it is made."""
    if observed(tables):
        tables.sql.execute("DROP TABLE decode")
        tables.sql.execute(f"CREATE TEMP VIEW decode AS {TABLES['decode'][1]}")


def _is_away(tables: Tables) -> bool:
    names = tables.sql.execute(_SQL["views"]).fetchall()
    return ("decode",) in names


def observed(tables: Tables) -> bool:
    """Whether the tables of :data:`TABLES` are there."""
    return tables.has(*TABLES)
