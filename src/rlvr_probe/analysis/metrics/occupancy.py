"""How full the decode slots of the engines were while there was rollout.

Of turns whose times are their own, the sequences in flight at each moment are known. Where all
responses of a call come back together, lengths give a bound: if all responses start at once, and a
sequence is not slower the fewer there are, the slots are at least as full as the sum of lengths
over their number times the longest. Without times nothing says how long a batch lasted beside
another one, so that there is no bound of several: only what it were if every token took as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rlvr_probe.analysis.metrics.families import distribution
from rlvr_probe.analysis.metrics.section import Section, evidence_of
from rlvr_probe.analysis.results import Chapter, query
from rlvr_probe.analysis.statements import make, statements
from rlvr_probe.analysis.statistics import Interval, mean_interval
from rlvr_probe.recording.tables import Tables

__all__ = ["TABLES", "observe", "observed", "occupancy", "put_away"]

_SQL: Final = statements(__name__)

_BINS: Final = 256
"""Pieces of the rollout of a batch: shares of time are as exact as one of them."""

_RUN_BINS: Final = 8_192
"""Pieces of the whole run, where trajectories are generated for a queue."""

_UNDER: Final = ("under_10", "under_25", "under_50")


def _derived(engine: str) -> dict[str, tuple[str, str]]:
    names = ("decode", "rollout", "flight")
    return _SQL.derived(*names, bins=_BINS, run_bins=_RUN_BINS, each_engine=engine)


TABLES: Final = _derived("each_engine")
"""By name: what a row is, and the query that makes it."""


@dataclass(frozen=True, slots=True)
class Flight:
    """What is known of the slots.

    Attributes:
        rollouts: How many are known.
        slots: Of one engine; None if that is not known.
        total: Slots of all engines, or the most sequences that were ever in flight.
    """

    rollouts: int
    slots: int | None
    total: float


def observe(tables: Tables, slots: int | None) -> Flight:
    """Make the tables of :data:`TABLES`: sequences in flight over the rollout of a batch.

    Args:
        tables: With the views of :mod:`rlvr_probe.analysis.samples`.
        slots: Sequences that an engine decodes at once, where that is known; what is in flight
            beyond them waits in its queue.
    """
    if ("decode",) in tables.sql.execute(_SQL["views"]).fetchall():
        tables.sql.execute("DROP VIEW decode")
    derived = _derived("0" if slots is None else "engine")
    meaning, _ = derived.pop("decode")
    make(tables, {"decode": (meaning, _SQL["of_batches"])}, by_step=True)
    tables.sql.execute(f"INSERT INTO decode {_SQL['of_none']}")
    make(tables, derived)
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


def observed(tables: Tables) -> bool:
    """Whether the tables of :data:`TABLES` are there."""
    return tables.has(*TABLES)


def occupancy(tables: Tables, *, slots: int | None = None) -> Chapter:
    """How full the slots were.

    Args:
        tables: Of a recording or a workload.
        slots: Sequences that one engine decodes at once, for example vLLM's ``max_num_seqs``. A
            recording does not have it; without it, slots are the most that were ever in use.
    """
    section = Section.of_samples(tables, "occupancy", "Decode slots")
    distribution(section, "length_idle", _SQL["length_idle"])
    section.add_series("length_idle.by_batch", section.ask(_SQL["length_idle_by_batch"]))
    flight = observe(tables, slots)
    [several] = section.ask(_SQL["several_turns"]).row
    if flight.rollouts:
        _in_use(section, flight)
    else:
        for name in ("slots", "mean", *_UNDER):
            section.add(name, None)
        section.notes.append("turns have no times of their own: slots in use follow from lengths")
        _bounds(section, slots, several=several)
    answer = section.ask(_SQL["queue_share"])
    [row] = answer.dicts
    evidence = evidence_of(trajectory=row["longest"])
    section.add("queue_share", row["share"], answer, evidence=evidence)
    if several:
        distribution(section, "turn_s", _SQL["turn_s"])
        distribution(section, "trajectory_s", _SQL["trajectory_s"])
    return section.chapter()


def _bounds(section: Section, slots: int | None, *, several: bool) -> None:
    """Where all responses of a call come back together, or nothing has a time."""
    answer = section.ask(_SQL["bounds"], slots=slots)
    least, most = answer.row
    section.add("least", least, answer if least is not None else None)
    section.add(
        "most", None if least is None else min(1.0, most), answer if least is not None else None
    )
    if least is not None:
        section.add("by_lengths", None)
        return
    if several:
        why = "trajectories have several turns, whose times were not recorded"
        section.add("by_lengths", None, why=why)
        return
    answer = section.ask(_SQL["by_lengths"])
    if not answer.rows:
        section.add("by_lengths", None)
        return
    [row] = answer.dicts
    low, high = _share_interval(row["share"], row["squares"], row["batches"], row["room"])
    evidence = evidence_of(batch=row["emptiest"])
    section.add("by_lengths", row["share"], answer, low=low, high=high, evidence=evidence)


def _share_interval(mean: float, squares: float, groups: int, count: int) -> Interval:
    """As :func:`~rlvr_probe.analysis.statistics.mean_interval`, of a share: between 0 and 1."""
    low, high = mean_interval(mean, squares, groups, count)
    return None if low is None else max(0.0, low), None if high is None else min(1.0, high)


def _in_use(section: Section, flight: Flight) -> None:
    total = flight.total
    section.add("slots", total, section.ask(_SQL["peak"]))
    if flight.slots is None:
        section.notes.append(
            "how many sequences an engine decodes at once was not recorded: slots are the most that"
            " were in use at a time, and occupancy is of these"
        )
    [units] = section.ask(_SQL["units"]).row
    if units > flight.rollouts:
        section.notes.append(
            f"{units - flight.rollouts:,} of {units:,} rollouts are omitted: of some trajectory no"
            " turn with a time of its own was recorded"
        )
    answer = section.ask(_SQL["by_batch"], total=total)
    rows = answer.dicts
    section.add_series("by_batch", answer)
    emptiest = sorted(rows, key=lambda row: row["mean"])
    evidence = evidence_of(batch=(row["unit"] for row in emptiest if row["unit"] >= 0))
    seconds = sum(row["seconds"] for row in rows)
    for name in ("mean", *_UNDER):
        mean = sum(row["seconds"] * row[name] for row in rows) / seconds
        squares = sum((row["seconds"] * (row[name] - mean)) ** 2 for row in rows)
        low, high = _share_interval(mean, squares, len(rows), seconds)
        section.add(name, mean, answer, low=low, high=high, evidence=evidence)
    section.add_series("profile", section.ask(_SQL["profile"], total=total))
