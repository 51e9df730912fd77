"""Sentences that a reader of a run should know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rlvr_probe.recording.decode import FINE
from rlvr_probe.recording.processes import Recorded

__all__ = [
    "cut", "loose", "not_reached", "of_tables", "omitted", "overflows", "reduced", "untrained",
]  # fmt: skip

_UNTRAINED: Final = "trajectories were generated for a queue and never trained on: "
_OF_TRACE: Final = f"{_UNTRAINED}not counted"
_OF_TABLES: Final = f"{_UNTRAINED}they count in lengths, turns, slots, rewards and tools"

_LOOSE: Final = {
    "rpcs": "calls of worker groups were recorded by the caller or its ranks alone, or not by every"
    " rank at its time: they are not joined",
    "requests": "requests were recorded by their caller and by an engine that scheduled them, and"
    " which is which is unknown: counted once, as asked for",
    "trajectories": "trajectories were generated and no trainer recorded them: not counted",
}
_SELECTION_UNKNOWN: Final = (
    "what a filter threw away of {} batches is unknown: the trainer is to filter groups and"
    " recorded no selection"
)
_LEVELS: Final = {
    "stages": "no turns and tool calls",
    "spans": "no turns, tool calls, lengths and rewards",
    "off": "nothing",
}
_CAUSES: Final = {
    "own_time": "the probe took too much of its time",
    "budget": "the files of the run on its node reached their budget",
    "low_space": "the file system had little room left",
}


def not_reached(unreached: Mapping[str, int]) -> list[str]:
    """Actors that were asked for and recorded nothing."""
    if not unreached:
        return []
    actors = ", ".join(
        f"{count} {role or 'of a class unknown'}" for role, count in unreached.items()
    )
    return [
        f"{sum(unreached.values())} actors were started and recorded nothing: {actors}; they did"
        " nothing that is recorded, or rlvr-probe is not installed where they run"
    ]


def loose(counts: Counter[str]) -> list[str]:
    """What was recorded by one process of two, or not at all."""
    found = [f"{counts[kind]} {text}" for kind, text in _LOOSE.items() if counts[kind]]
    if counts["batches"]:
        found.append(_SELECTION_UNKNOWN.format(counts["batches"]))
    return found


def omitted(processes: Sequence[Recorded], missing: Sequence[str]) -> list[str]:
    """That single trajectories are omitted where libraries are missing that join them."""
    if not any(FINE.keys() & process.journal.totals for process in processes):
        return []
    return [
        f"turns, tool calls and verifications are omitted: {', '.join(missing)} not installed;"
        " pip install 'rlvr-probe[cli]'"
    ]


def untrained(count: int) -> list[str]:
    """What was generated and never trained on."""
    return [f"{count} {_OF_TRACE}"] if count else []


def of_tables(notes: Iterable[str]) -> list[str]:
    """Notes on a trace, for its tables: these have what belongs to no step as well."""
    return [note.replace(_OF_TRACE, _OF_TABLES) for note in notes]


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
            f"{what} and omitted from lengths, turns, tools and rewards: what is missing of a batch"
            " is rather long than short"
        ]
    return [f"{what}, and no other is: lengths are rather too small"]


def reduced(processes: Sequence[Recorded]) -> list[str]:
    """Which processes recorded less than everything from some time on."""
    members = dict[str, list[int]]()
    for index, process in enumerate(processes):
        journal = process.journal
        if journal.level in _LEVELS:
            cause = _CAUSES.get(journal.level_reason.partition(" ")[0], journal.level_reason)
            what = f"recorded {_LEVELS[journal.level]} from some time on"
            members.setdefault(f"{what}: {cause}" if cause else what, []).append(index)
        for place in journal.muted:
            what = f"read nothing at {place} from some time on: it took too much of the time"
            members.setdefault(what, []).append(index)
    return [
        f"process {indices[0]} {what}"
        if len(indices) == 1
        else f"{len(indices)} processes, the first is {indices[0]}, {what}"
        for what, indices in members.items()
    ]


def overflows(processes: Sequence[Recorded]) -> list[str]:
    """What tables of open spans do not say."""
    tables = [process.table for process in processes if process.table is not None]
    counts = {
        "processes have no table of open spans (on a network file system?)": sum(
            process.table is None and process.state != "exited" for process in processes
        ),
        "tables of open spans are damaged: when these processes were last alive is known from their"
        " journals alone": sum(table.damaged for table in tables),
        "spans found no free slot in the table of open spans": sum(
            table.overflow for table in tables
        ),
        "slots of the table of open spans are unreadable": sum(table.bad_slots for table in tables),
    }
    return [f"{count} {text}" for text, count in counts.items() if count]
