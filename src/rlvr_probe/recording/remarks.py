"""Sentences that a reader of a run should know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from rlvr_probe.recording.load import Recorded
from rlvr_probe.recording.types import FINE

__all__ = [
    "NOT_TRAINED_ON",
    "cut",
    "left_out",
    "loose",
    "not_reached",
    "overflows",
    "reduced",
    "untrained",
]


NOT_TRAINED_ON: Final = "were generated for a queue and never trained on"


def not_reached(unreached: Mapping[str, int]) -> list[str]:
    """Actors that were asked for and never told of themselves."""
    if not unreached:
        return []
    actors = ", ".join(
        f"{count} {role or 'of a class unknown'}" for role, count in unreached.items()
    )
    return [
        f"{sum(unreached.values())} actors were started and recorded nothing: {actors}; they did"
        " nothing that is recorded, or rlvr-probe is not installed where they run"
    ]


def loose(loose: Counter[str]) -> list[str]:
    """What was recorded on one side only, or not at all."""
    notes = list[str]()
    if loose["rpcs"]:
        notes.append(
            f"{loose['rpcs']} calls of worker groups are known from one side only, or not from"
            " every rank at its time: they are not joined"
        )
    if loose["requests"]:
        notes.append(
            f"{loose['requests']} requests are known of who asked and of an engine that scheduled"
            " them, and of which is which nobody can tell: counted once, as asked for"
        )
    if loose["trajectories"]:
        notes.append(
            f"{loose['trajectories']} trajectories were generated and no trainer told of them: not"
            " counted"
        )
    if loose["batches"]:
        notes.append(
            f"what a filter threw away of {loose['batches']} batches is not known: the trainer is"
            " to filter groups and told of no selection"
        )
    return notes


def left_out(processes: Sequence[Recorded]) -> list[str]:
    """That single trajectories are not told of where DuckDB is missing, which joins them."""
    if not any(FINE.keys() & process.journal.totals for process in processes):
        return []
    return [
        "turns, tool calls and verifications are left out: duckdb not installed;"
        " pip install 'rlvr-probe[cli]'"
    ]


def untrained(count: int) -> list[str]:
    """What was generated and never trained on."""
    if not count:
        return []
    return [f"{count} trajectories {NOT_TRAINED_ON}: not counted"]


def cut(whole: int, count: int, rows: int) -> list[str]:
    """Generation batches of training that lack trajectories.

    Args:
        whole: Batches that lack none.
        count: Batches that do.
        rows: Trajectories of these that were recorded.
    """
    if not count:
        return []
    what = "1 generation batch is" if count == 1 else f"{count:,} generation batches are"
    what += f" not whole ({rows:,} trajectories)"
    if whole:
        return [
            f"{what} and left out of lengths, turns, tools and rewards: what is missing of a batch"
            " is rather long than short"
        ]
    return [f"{what}, and no other is: figures of lengths are rather too small"]


def reduced(processes: Sequence[Recorded]) -> list[str]:
    """Who recorded less than everything from some time on."""
    left = {
        "stages": "no turns and tool calls",
        "spans": "no turns, tool calls, lengths and rewards",
        "off": "nothing",
    }
    causes = {
        "own_time": "the probe took too much of its time",
        "budget": "the files of the run on its node reached their budget",
        "low_space": "the file system had little room left",
    }
    found = dict[str, list[int]]()
    for index, one in enumerate(processes):
        journal = one.journal
        if journal.level in left:
            cause = causes.get(journal.level_reason.partition(" ")[0], journal.level_reason)
            what = f"recorded {left[journal.level]} from some time on"
            found.setdefault(f"{what}: {cause}" if cause else what, []).append(index)
        for place in journal.muted:
            what = f"read nothing at {place} from some time on: it took too much of the time"
            found.setdefault(what, []).append(index)
    return [
        f"process {indices[0]} {what}"
        if len(indices) == 1
        else f"{len(indices)} processes, the first is {indices[0]}, {what}"
        for what, indices in found.items()
    ]


def overflows(processes: Sequence[Recorded]) -> list[str]:
    """What tables of open spans do not say."""
    notes = list[str]()
    without = sum(one.table is None and one.state != "exited" for one in processes)
    if without:
        notes.append(f"{without} processes have no table of open spans (on a network file system?)")
    damaged = sum(one.table.damaged for one in processes if one.table is not None)
    if damaged:
        notes.append(
            f"{damaged} tables of open spans are damaged: when these processes were last alive is"
            " known from their journals alone"
        )
    missed = sum(one.table.overflow for one in processes if one.table is not None)
    if missed:
        notes.append(f"{missed} spans found no free slot in the table of open spans")
    broken = sum(one.table.bad_slots for one in processes if one.table is not None)
    if broken:
        notes.append(f"{broken} slots of the table of open spans are unreadable")
    return notes
