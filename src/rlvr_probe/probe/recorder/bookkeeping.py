"""Rows about the recording itself: layouts of rows, what has long been open, totals, the level."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlvr_probe import guard
from rlvr_probe.model import names
from rlvr_probe.model.names import Name
from rlvr_probe.probe.journal.space import ALWAYS, FINE, SAMPLES
from rlvr_probe.probe.recorder.owntime import culprits

if TYPE_CHECKING:
    from rlvr_probe.probe.recorder.recorder import Recorder

__all__ = ["FULL", "OFF", "STAGES", "Bookkeeping", "define", "definitions_since", "worth"]

OFF, STAGES, FULL = 0, 1, 2
_LEVELS = ("off", "stages", "full")

OPEN_AFTER_NS = 1_000_000_000
"""A span open for longer than this is journaled as open; also how often totals are looked at."""

WINDOW_NS = 30_000_000_000
"""Where the probe takes more of the time of a window than it may. That is acted upon at once:
nothing that follows in the window would make it less."""

Definition = tuple[str, int, str, str, tuple[str, ...]]

_BY_SAMPLE = frozenset({names.TRAJECTORIES.name, names.REWARDS.name, names.USER.name})

_definitions: list[Definition] = []
_by_layout: dict[tuple[str, tuple[str, ...]], int] = {}
_numbers = itertools.count()
_worth: dict[int, int] = {}


def define(name: Name, attributes: Sequence[str]) -> int:
    """Number of the layout of rows for ``name`` with these attributes."""
    layout = (name.name, tuple(attributes))
    number = _by_layout.get(layout)
    if number is None:
        # No lock, which a signal handler could meet again: two numbers for one layout do no harm,
        # one number for two layouts would.
        number = next(_numbers)
        kind = "event" if name.event else "span"
        if not name.event and not name.coarse:
            _worth[number] = FINE
        elif name.name in _BY_SAMPLE:
            _worth[number] = SAMPLES
        _definitions.append(("def", number, kind, *layout))
        _by_layout[layout] = number
    return number


def definitions_since(number: int) -> list[Definition]:
    """Every definition from ``number`` on, as rows of the journal."""
    return _definitions[number:]


def worth(number: int) -> int:
    """What rows of a definition are worth where room is short, as ``journal.space`` has it."""
    return _worth.get(number, ALWAYS)


class Bookkeeping:
    """Remembers what was written, so that each fact is written when it changes. One thread only."""

    def __init__(
        self, mono_ns: int, level: int, *, own_share: float = 0.01, muted: Sequence[str] = ()
    ) -> None:
        """Start at ``mono_ns``, time 0 of the journal.

        Args:
            mono_ns: CLOCK_MONOTONIC.
            level: A forked child may inherit a lower one.
            own_share: Share of the wall time of a window that the probe itself may take.
            muted: Places that a forked child inherits muted.
        """
        self._totals: dict[tuple[str, ...], object] = {}
        self._open: set[int] = set()
        self._own_share = own_share
        self._allowed = level
        self._why = "inherited"
        self._lowered = level == STAGES
        self._muted = dict.fromkeys(muted, "inherited")
        self._window = (mono_ns, 0)
        self._looked_ns = 0

    def rows(
        self, recording: Recorder, now_ns: int, written: Mapping[str, int]
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
        self._watch_own_time(recording, now_ns)
        time_ns = now_ns - recording.mono_ns
        return [
            *self._newly_open(recording, now_ns),
            *self.totals(recording, time_ns, written),
        ]

    def totals(
        self, recording: Recorder, time_ns: int, written: Mapping[str, int]
    ) -> list[Sequence[Any]]:
        """Running totals that changed since they were last given."""
        # A copy: users' threads count while this one reads.
        lost = Counter(dict(recording.lost)) + Counter(written)
        rows: list[Sequence[Any]] = []
        level, why = self._level(recording)
        self._lowered = self._lowered or level != _LEVELS[FULL]
        if self._lowered and self._changed(level, "level"):
            rows.append(("level", time_ns, level, why))
        for place, why in self._muted.items():
            if self._changed(why, "muted", place):
                rows.append(("muted", time_ns, place, why))
        for reason, total in lost.items():
            if self._changed(total, "lost", reason):
                rows.append(("lost", time_ns, reason, total))
        for (place, error), total in guard.faults().items():
            if self._changed(total, "fault", place, error):
                rows.append(("fault", time_ns, place, error, total))
        if self._changed(recording.own_ns // 1_000_000, "own"):
            rows.append(("own", time_ns, recording.own_ns))
        return rows

    def forget(self) -> None:
        """Give every total again: what was given last did not reach the disk."""
        self._totals.clear()

    def _changed(self, total: object, *key: str) -> bool:
        changed = self._totals.get(key) != total
        self._totals[key] = total
        return changed

    def _newly_open(self, recording: Recorder, now_ns: int) -> list[Sequence[Any]]:
        rows: list[Sequence[Any]] = []
        # list() of a dict is safe beside threads that change it; iterating is not.
        for span, (definition, start_ns, parent) in list(recording.open.items()):
            if now_ns - start_ns >= OPEN_AFTER_NS and span not in self._open:
                self._open.add(span)
                rows.append(("open", definition, start_ns - recording.mono_ns, span, parent))
        self._open.intersection_update(list(recording.open))
        return rows

    def _level(self, recording: Recorder) -> tuple[str, str]:
        """What is written, and why not everything."""
        level = self._allowed
        limit = recording.place.space.limit
        if level == OFF or (level == STAGES and limit > SAMPLES):
            return _LEVELS[level], self._why
        if limit > FINE:
            return _LEVELS[FULL], "space"
        return "stages" if limit == FINE else "spans", recording.place.space.said

    def _watch_own_time(self, recording: Recorder, now_ns: int) -> None:
        """Too much in a window: mute one or two places that explain it, else record less."""
        begin, own_ns = self._window
        spent_ns, limit_ns = recording.own_ns - own_ns, self._own_share * WINDOW_NS
        if spent_ns <= limit_ns and now_ns - begin < WINDOW_NS:
            return
        self._window = (now_ns, recording.own_ns)
        accounts = list(recording.accounts.values())
        if spent_ns > limit_ns and recording.level != OFF:
            elapsed_s = (now_ns - begin) / 1e9
            found = culprits(accounts, spent_ns, limit_ns)
            for account in found:
                account.muted = True
                self._muted[account.place] = _spent(account.own_ns, elapsed_s)
            if not found:
                recording.level -= 1
                self._allowed = recording.level
                self._why = _spent(spent_ns, elapsed_s)
                if recording.level == OFF:
                    recording.forget_open()
        for account in accounts:
            account.own_ns = 0


def _spent(own_ns: int, elapsed_s: float) -> str:
    return f"own_time {own_ns / 1e9:.3f} s in {elapsed_s:.1f} s"
