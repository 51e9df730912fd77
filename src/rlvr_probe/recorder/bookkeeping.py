"""Rows about the recording itself: what has been open for long, running totals, the level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rlvr_probe import guard

__all__ = ["FULL", "OFF", "STAGES", "Bookkeeping"]

OFF, STAGES, FULL = 0, 1, 2
_LEVELS = ("off", "stages", "full")

OPEN_AFTER_NS = 1_000_000_000
"""A span open for longer than this is journaled as open; also how often totals are looked at."""

WINDOW_NS = 30_000_000_000
OWN_SHARE = 0.01
"""More of the wall time of a window than this, spent by the probe itself, is too much."""


class Recording(Protocol):
    """What the books look at."""

    level: int
    own_ns: int
    mono_ns: int
    open: dict[int, tuple[int, int, int, int]]
    lost: Counter[str]

    def forget_open(self) -> None:
        """Nobody will end what is open."""


class Bookkeeping:
    """Remembers what was written, so that each fact is written when it changes. One thread only."""

    def __init__(self, mono_ns: int, level: int) -> None:
        """Begin at ``mono_ns``, time 0 of the journal; a forked child may inherit a lower level."""
        self._totals: dict[tuple[str, ...], int] = {}
        self._open: set[int] = set()
        self._inherited = level == STAGES
        self._window = (mono_ns, 0)
        self._looked_ns = 0

    def rows(
        self, recording: Recording, now_ns: int, written: Mapping[str, int]
    ) -> list[Sequence[Any]] | None:
        """Rows that are due, None if it is not yet time to look again.

        Args:
            recording: Looked at, and set to a lower level if it takes too much time.
            now_ns: CLOCK_MONOTONIC.
            written: Rows lost while writing, by reason, running totals.
        """
        if now_ns - self._looked_ns < OPEN_AFTER_NS:
            return None
        self._looked_ns = now_ns
        time_ns = now_ns - recording.mono_ns
        return [
            *self._newly_open(recording, now_ns),
            *self._watch_own_time(recording, now_ns),
            *self.totals(recording, time_ns, written),
        ]

    def totals(
        self, recording: Recording, time_ns: int, written: Mapping[str, int]
    ) -> list[Sequence[Any]]:
        """Running totals that changed since they were last given."""
        # A copy: users' threads count while this one reads.
        lost = Counter(dict(recording.lost)) + Counter(written)
        rows: list[Sequence[Any]] = []
        if self._inherited:
            rows.append(("level", time_ns, _LEVELS[STAGES], "inherited"))
            self._inherited = False
        for reason, total in lost.items():
            if self._changed(total, "lost", reason):
                rows.append(("lost", time_ns, reason, total))
        for (place, error), total in guard.faults().items():
            if self._changed(total, "fault", place, error):
                rows.append(("fault", time_ns, place, error, total))
        if self._totals.get(("own",), -1_000_000) + 1_000_000 <= recording.own_ns:
            self._totals["own",] = recording.own_ns
            rows.append(("own", time_ns, recording.own_ns))
        return rows

    def forget(self) -> None:
        """Give every total again: what was given last did not reach the disk."""
        self._totals.clear()

    def _changed(self, total: int, *key: str) -> bool:
        changed = self._totals.get(key) != total
        self._totals[key] = total
        return changed

    def _newly_open(self, recording: Recording, now_ns: int) -> list[Sequence[Any]]:
        rows: list[Sequence[Any]] = []
        # list() of a dict is safe beside threads that change it; iterating is not.
        for span, (definition, start_ns, parent, _) in list(recording.open.items()):
            if now_ns - start_ns >= OPEN_AFTER_NS and span not in self._open:
                self._open.add(span)
                rows.append(("open", definition, start_ns - recording.mono_ns, span, parent))
        self._open.intersection_update(list(recording.open))
        return rows

    def _watch_own_time(self, recording: Recording, now_ns: int) -> list[Sequence[Any]]:
        """Too much of a window: record less, stages only at first, then nothing."""
        begin, own = self._window
        if now_ns - begin < WINDOW_NS:
            return []
        share = (recording.own_ns - own) / (now_ns - begin)
        self._window = (now_ns, recording.own_ns)
        if share <= OWN_SHARE or recording.level == OFF:
            return []
        recording.level -= 1
        if recording.level == OFF:
            recording.forget_open()
        reason = f"own_time {share:.4f}"
        return [("level", now_ns - recording.mono_ns, _LEVELS[recording.level], reason)]
