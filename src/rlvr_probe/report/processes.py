"""The processes of a run: how each ended, and what recording took of its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_probe.report.document import Block, Column, clean, grid, seconds

__all__ = ["process_table", "short_state", "state_counts", "states"]

_ENDED = "ended_with_training"


def states(processes: Sequence[Mapping[str, Any]]) -> str:
    """How many processes there are in each state, in words."""
    counts = Counter(one["state"] for one in processes)
    many = f"{len(processes):,} " + ("process" if len(processes) == 1 else "processes")
    if len(counts) == 1:
        return f"{many} {_words(next(iter(counts)))}"
    found = ", ".join(f"{count:,} {_words(state)}" for state, count in _alarms_first(counts))
    return f"{many}: {found}" if found else many


def state_counts(counts: Mapping[str, int]) -> str:
    """The same of a column."""
    return ", ".join(f"{count:,} {short_state(state)}" for state, count in _alarms_first(counts))


def short_state(state: str) -> str:
    """A state as a column has room for it."""
    return "ended" if state == _ENDED else state


def process_table(processes: Sequence[Mapping[str, Any]]) -> list[Block]:
    """A row for each process, those that died first; nothing if there is none."""
    hosts = {one["host"] for one in processes}
    rows = [
        [
            str(one["index"]),
            clean(one["host"], 20) if len(hosts) > 1 else "",
            clean(one["role"] or "", 24),
            "" if one["rank"] is None else clean(one["rank"], 16),
            str(one["pid"]),
            short_state(one["state"]),
            seconds(one["last_seen_s"] - one["start_s"]),
            seconds(one["silent_s"]),
            "" if one["own_share"] is None else f"{one['own_share']:.2%}",
            f"{sum(one['lost'].values()):,}",
        ]
        for one in sorted(processes, key=lambda one: one["state"] != "died")
    ]
    columns = (
        Column("process"),
        Column("host", number=False),
        Column("role", number=False),
        Column("rank"),
        Column("pid"),
        Column("state", number=False),
        Column("recorded s"),
        Column("silent s"),
        Column("probe's own time"),
        Column("lost"),
    )
    if not rows:
        return []
    return [grid("Processes", columns, rows, head=8, tail=4, what="processes")]


def _words(state: str) -> str:
    return "ended with the training" if state == _ENDED else state


def _alarms_first(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (item[0] != "died", -item[1]))
