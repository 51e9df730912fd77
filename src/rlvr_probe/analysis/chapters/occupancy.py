"""How full the decode slots of the engines were while there was rollout.

Of turns whose times are their own, the sequences in flight at each moment are known. Where all
responses of a call come back together, lengths tell a bound: if all responses begin at once, and a
sequence is not slower the fewer there are, the slots are at least as full as the sum of lengths
over their number times the longest. Without times nothing says how long a batch lasted beside
another one, so that there is no bound of several: only what it were if every token took as long.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.chapters.definitions import (
    Definition,
    Found,
    SeriesDefinition,
    evidence_of,
)
from rlvr_probe.analysis.chapters.distributions import Quantity, ask, distribution
from rlvr_probe.analysis.chapters.flight import BINS, RUN_BINS, Flight, observe
from rlvr_probe.analysis.chapters.intervals import mean_interval
from rlvr_probe.analysis.chapters.samples import prepare
from rlvr_probe.analysis.figures import Chapter, query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["DEFINITIONS", "SERIES", "occupancy"]

_SQL: Final = statements(__name__)

_NO_TIMES: Final = "no rollout of which every turn has a time of its own was recorded"
_LENGTH_IDLE: Final = Quantity(
    "occupancy.length_idle",
    "slots that lengths leave idle",
    "1 - sum(length) / (count x longest length) of the responses of every batch: the share of slots"
    " that lengths alone leave idle (trajectory.response_tokens)",
    "1",
    _SQL["length_idle"],
    "no batch that was generated at once was recorded",
)
_TURN_S: Final = Quantity(
    "occupancy.turn_s",
    "duration of a turn",
    "the duration of every turn of which there are several to a trajectory, the time in the"
    " engine's queue included (turn.took_s)",
    "s",
    _SQL["turn_s"],
    "no trajectory has several turns with times of their own",
    by_step=True,
)
_TRAJECTORY_S: Final = Quantity(
    "occupancy.trajectory_s",
    "engine time of a trajectory",
    "the sum of the durations of the turns of every trajectory (turn.took_s)",
    "s",
    _SQL["trajectory_s"],
    "no trajectory has several turns with times of their own",
    by_step=True,
)
_SLOTS: Final = Definition(
    "occupancy.slots",
    "decode slots",
    "Slots of one engine times engines, where the slots are given; else the most sequences that"
    " were in flight at a time in the run (mean over a piece of time).",
    "1",
    _NO_TIMES,
)
_MEAN: Final = Definition(
    "occupancy.mean",
    "slots in use",
    "Time of turns over slots times rollout time, from the begin of the first turn of a batch to"
    " the end of the last one (turn.start_ns, turn.end_ns; without the time in the engine's queue"
    " where that is known). Interval: Student's t over batches.",
    "1",
    _NO_TIMES,
)
_UNDER: Final = {
    share: Definition(
        f"occupancy.under_{round(share * 100)}",
        f"time with under {share:.0%} of slots in use",
        f"Share of rollout time in which fewer than {share:g} of the slots were in use, in"
        f" {BINS} pieces of each rollout, {RUN_BINS} of a run with a queue.",
        "1",
        _NO_TIMES,
    )
    for share in (0.1, 0.25, 0.5)
}
_LEAST: Final = Definition(
    "occupancy.least",
    "slots in use, at least",
    "What lengths say if all responses of a call begin at once, and none gets slower as others end:"
    " sum over engine calls of seconds x sum(length) / longest length, over slots x rollout time"
    " (turn.start_ns, turn.end_ns, turn.response_tokens).",
    "1",
    "no engine call of several sequences with its time was recorded",
)
_BY_LENGTHS: Final = Definition(
    "occupancy.by_lengths",
    "slots in use, were all tokens alike",
    "Of sources without times: sum(length) over sum(count x longest length) of all batches: the"
    " share of slots that decode if all responses of a batch begin at once, and every token of"
    " every batch takes as long (trajectory.response_tokens). No bound. Interval: Student's t over"
    " batches.",
    "1",
    "times tell more, or no batch that was generated at once was recorded",
)
_MOST: Final = Definition(
    "occupancy.most",
    "slots in use, at most",
    "Sum over engine calls of seconds x sequences, over slots x rollout time: every sequence is"
    " taken to last as long as its call (turn.start_ns, turn.end_ns).",
    "1",
    "no engine call of several sequences with its time was recorded",
)
_QUEUE: Final = Definition(
    "occupancy.queue_share",
    "turn time in the engine's queue",
    "Time from when the engine had a request until it first scheduled it, over the time of turns,"
    " of turns of which both are known (turn.queue_s).",
    "1",
    "engines did not tell how long requests were in their queues",
)
DEFINITIONS: Final = (
    *(one for each in (_LENGTH_IDLE, _TURN_S, _TRAJECTORY_S) for one in each.definitions),
    _SLOTS, _MEAN, *_UNDER.values(), _LEAST, _MOST, _BY_LENGTHS, _QUEUE,
)  # fmt: skip

BY_BATCH: Final = SeriesDefinition(
    "occupancy.by_batch",
    "slots in use by batch",
    "Of each rollout: its time, time of turns, slots in use and shares of its time with few of them"
    " (as occupancy.mean and occupancy.under_10).",
    {
        "unit": "", "step": "", "seconds": "s", "slot_seconds": "s", "trajectories": "1",
        "mean": "1", "under_10": "1", "under_25": "1", "under_50": "1",
    },
)  # fmt: skip
PROFILE: Final = SeriesDefinition(
    "occupancy.profile",
    "slots in use over the rollout",
    "Mean over rollouts of the share of slots in use, by the share of the rollout's time that is"
    " over.",
    {"time": "1", "mean": "1", "p10": "1", "p90": "1"},
)
LENGTH_IDLE_BY_BATCH: Final = SeriesDefinition(
    "occupancy.length_idle.by_batch",
    "slots that lengths leave idle, by batch",
    "As occupancy.length_idle.",
    {"batch_id": "", "step": "", "length_idle": "1"},
)
SERIES: Final = (
    BY_BATCH, PROFILE, LENGTH_IDLE_BY_BATCH, _TURN_S.series, _TRAJECTORY_S.series,
)  # fmt: skip


def occupancy(tables: Tables, *, slots: int | None = None) -> Chapter:
    """How full the slots were.

    Args:
        tables: Of a recording or a workload.
        slots: Sequences that one engine decodes at once, for example vLLM's ``max_num_seqs``. A
            recording does not have it; without it, slots are the most that were ever in use.
    """
    found = Found("occupancy", "Decode slots")
    found.notes += prepare(tables)
    figures, _ = distribution(tables, _LENGTH_IDLE)
    found.add(*figures)
    _idle_by_batch(tables, found)
    flight = observe(tables, slots)
    if flight.rollouts:
        _in_use(tables, found, flight)
    else:
        found.add(*(one.of(None) for one in (_SLOTS, _MEAN, *_UNDER.values())))
        found.notes.append(
            "turns have no times of their own: how full the slots were is known from lengths only"
        )
        _bounds(tables, found, slots)
    _queue(tables, found)
    if query(tables, _SQL["several_turns"]).row[0]:
        ask(tables, found, _TURN_S)
        ask(tables, found, _TRAJECTORY_S)
    return found.chapter()


def _bounds(tables: Tables, found: Found, slots: int | None) -> None:
    """Where all responses of a call come back together, or nothing has a time."""
    answer = query(
        tables,
        _SQL["bounds"],
        slots=slots,
    )
    [told] = answer.dicts
    if told["least"] is not None:
        least, most = _LEAST.of(told["least"], answer), _MOST.of(min(1.0, told["most"]), answer)
        found.add(least, most, _BY_LENGTHS.of(None))
        return
    found.add(_LEAST.of(None), _MOST.of(None))
    if query(tables, _SQL["several_turns"]).row[0]:
        why = "trajectories have several turns, whose times were not recorded"
        found.add(_BY_LENGTHS.of(None, why=why))
        return
    answer = query(tables, _SQL["by_lengths"])
    if not answer.rows:
        found.add(_BY_LENGTHS.of(None))
        return
    [told] = answer.dicts
    low, high = mean_interval(told["share"], told["squares"], told["batches"], told["room"])
    low = None if low is None else max(0.0, low)
    high = None if high is None else min(1.0, high)
    behind = evidence_of(batch=told["emptiest"])
    found.add(_BY_LENGTHS.of(told["share"], answer, low=low, high=high, evidence=behind))


def _idle_by_batch(tables: Tables, found: Found) -> None:
    answer = query(tables, _SQL["length_idle_by_batch"])
    found.series.append(LENGTH_IDLE_BY_BATCH.of(answer))


def _in_use(tables: Tables, found: Found, flight: Flight) -> None:
    total = flight.total
    told = query(tables, _SQL["peak"])
    found.add(_SLOTS.of(total, told))
    if flight.slots is None:
        found.notes.append(
            "how many sequences an engine decodes at once was not recorded: slots are the most that"
            " were in use at a time, and occupancy is of these"
        )
    [units] = query(tables, _SQL["units"]).row
    if units > flight.rollouts:
        found.notes.append(
            f"of {units:,} rollouts, {units - flight.rollouts:,} are left out: of some trajectory"
            " no turn with a time of its own was recorded"
        )
    answer = query(
        tables,
        _SQL["by_batch"],
        total=total,
    )
    rows = answer.dicts
    found.series.append(BY_BATCH.of(answer))
    emptiest = sorted(rows, key=lambda row: row["mean"])
    steps = evidence_of(batch=(row["unit"] for row in emptiest if row["unit"] >= 0))
    for one, weight in ((_MEAN, "mean"), *((one, _name(one)) for one in _UNDER.values())):
        pairs = [(row["seconds"], row[weight]) for row in rows]
        seconds = sum(length for length, _ in pairs)
        mean = sum(length * share for length, share in pairs) / seconds
        squares = sum((length * (share - mean)) ** 2 for length, share in pairs)
        low, high = mean_interval(mean, squares, len(pairs), seconds)
        low = None if low is None else max(0.0, low)
        high = None if high is None else min(1.0, high)
        found.add(one.of(mean, answer, low=low, high=high, evidence=steps))
    _profile(tables, found, total)


def _name(one: Definition) -> str:
    return one.id.rpartition(".")[2]


def _profile(tables: Tables, found: Found, total: float) -> None:
    answer = query(
        tables,
        _SQL["profile"],
        total=total,
    )
    found.series.append(PROFILE.of(answer))


def _queue(tables: Tables, found: Found) -> None:
    answer = query(tables, _SQL["queue_share"])
    [told] = answer.dicts
    found.add(_QUEUE.of(told["share"], answer, evidence=evidence_of(trajectory=told["longest"])))
