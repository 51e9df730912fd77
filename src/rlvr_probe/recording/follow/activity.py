"""What each process of a run is doing, and how long the same took it before.

Answers whether a run is stuck: journals are read once, and onwards when asked again, and of what
ended only durations are kept. Rows that do not fit their checksum are skipped; the reader of the
whole recording counts them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from rlvr_probe.model import names
from rlvr_probe.recording.between_steps import (
    AFTER,
    AROUND,
    BEFORE,
    BETWEEN,
    OUTSIDE,
    UNSEEN,
    Between,
)
from rlvr_probe.recording.decode import FINE, Definition, RowDecoder
from rlvr_probe.recording.files import Segment, list_files
from rlvr_probe.recording.follow.growing_journal import GrowingJournal
from rlvr_probe.recording.follow.member import Member, Past, Work
from rlvr_probe.recording.opentable import Table, read_table
from rlvr_probe.recording.process_state import DRIVER, Machine

__all__ = ["Activity"]

_SLICE_B: Final = 1024 * 1024
_DETAILS: Final = ("function", "method", "tool", "label")
"""Attributes that tell apart spans of one name, as in the open-span table."""
_TIME_MAX: Final = 1 << 62
_TURNS: Final = 100_000
"""Most trajectories whose turns are counted: those of damaged rows never end."""
_DETAIL_B: Final = 48
"""What :data:`~rlvr_probe.model.schema.OPEN_SLOT` has room for, of a detail."""
_JUST_NS: Final = 2_000_000_000
_BEATS_S: Final = 0.5
"""Wait for another sign of life, due every 0.1 s, before a process counts as dead."""
_ASIDE: Final = (names.EVAL.name, names.CHECKPOINT.name)


class Activity:
    """A run that is looked at again and again. One thread.

    Attributes:
        folder: The run folder.
        machine: This machine.
    """

    def __init__(self, folder: Path, machine: Machine | None = None) -> None:
        """Read nothing yet."""
        self.folder = folder
        self.machine = Machine() if machine is None else machine
        self._journals: dict[str, _Journal] = {}

    def close(self) -> None:
        """Close every file."""
        for journal in self._journals.values():
            journal.close()

    def read(self) -> list[Member]:
        """Read what is new; the processes of the job, by start.

        Raises:
            RecordingError: There is no recording, or it is of another format than this version's.
            OSError: A file cannot be read.
        """
        files = list_files(self.folder)
        found = list[Member]()
        for process, parts in files.segments.items():
            journal = self._journals.setdefault(process, _Journal(process))
            path = files.tables.get(process)
            # The table before the journal: a span that ends in between is found as a finished row.
            table = None if path is None else read_table(path, process)
            journal.read(
                parts, frozenset(slot.span for slot in table.slots) if table else frozenset()
            )
            if journal.member is not None and journal.member.role != names.SIDECAR:
                found.append(self._member(journal, journal.member, table))
        self._find_hidden(found, files.tables)
        return sorted(found, key=lambda member: member.header.epoch_ns)

    def _find_hidden(self, members: Sequence[Member], tables: Mapping[str, Path]) -> None:
        """Mark processes as running that seem dead and give signs of life: in a container."""
        now_ns = self.machine.now_ns()
        doubtful = [
            member
            for member in members
            if member.state == "died" and 0 <= now_ns - member.heartbeat_ns < _JUST_NS
        ]
        if doubtful:
            time.sleep(_BEATS_S)
        for member in doubtful:
            process = member.header.process
            table = read_table(tables[process], process) if process in tables else None
            if table is not None and table.heartbeat_ns > member.heartbeat_ns:
                member.state, member.hidden = "running", True
                member.heartbeat_ns = table.heartbeat_ns

    def _member(self, journal: _Journal, member: Member, table: Table | None) -> Member:
        ended = journal.ended or (table is not None and table.ended)
        member.state, member.hidden = self.machine.state(member.header, ended), False
        member.trained = journal.trained and not journal.queued
        member.interactive = member.state == "running" and self.machine.is_interactive(
            member.header.pid
        )
        beat_ns = 0 if table is None else table.heartbeat_ns
        member.beats = beat_ns > 0
        member.heartbeat_ns = max(beat_ns, member.last_ns, member.header.mono_ns)
        opened = sorted(journal.open(table), key=lambda work: work.start_ns)
        member.work = () if ended else journal.outside(opened, table is not None)
        return member


class _Journal(RowDecoder):
    """The journal of one process, read onwards."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self.member: Member | None = None
        self.ended = self.trained = self.queued = False
        self._growing = GrowingJournal(process, _SLICE_B)
        self._events = {
            names.LEFT.name: self._left,
            names.PROCESS.name: self._process,
            names.TRAJECTORIES.name: self._trajectories,
            names.SESSION.name: self._session,
            names.SESSION_END.name: self._session_end,
            names.SELECTED.name: self._selected,
        }
        self._opened: dict[int, tuple[str, int, int]] = {}
        self._watched = frozenset[int]()
        self._finished = set[int]()
        self._turns: Counter[int] = Counter()
        self._aside_ns: Counter[int] = Counter()
        self._between = Between()

    def close(self) -> None:
        self._growing.close()

    def open(self, table: Table | None) -> Iterator[Work]:
        """Spans that have not ended: of the table, and finer ones that were journaled as open."""
        slots = () if table is None else table.slots
        known = {slot.span for slot in slots}
        for slot in slots:
            if slot.span not in self._finished:
                yield Work(
                    slot.span, slot.parent, slot.name, slot.detail, slot.start_ns, slot.step,
                    slot.thread, self._turns[slot.span], self._aside_ns[slot.span],
                )  # fmt: skip
        for span, (name, start_ns, parent) in self._opened.items():
            if span not in known:
                yield Work(span, parent, name, "", start_ns, turns=self._turns[span])

    def outside(self, opened: list[Work], whole: bool) -> list[Work]:
        """``opened``, and what goes on outside of any step, if something does.

        Args:
            opened: What is open, outer spans first.
            whole: Whether that is all of it.
        """
        member, between = self.member, self._between
        assert member is not None  # noqa: S101 - who is asked has a header
        if between.over_ns is not None and member.trained and not opened:
            return [Work(OUTSIDE, 0, AFTER, "", max(between.over_ns, member.last_ns))]
        since_ns = between.since_ns if member.trained else member.header.mono_ns
        if since_ns is None or any(work.name in AROUND for work in opened):
            return opened
        if not member.trained and (opened or member.past):
            return opened
        name = BETWEEN if between.stepped else BEFORE
        if member.trained and not whole:
            name, since_ns = UNSEEN, max(since_ns, member.last_ns)
        around = [work for work in opened if work.start_ns < since_ns]
        own = Work(OUTSIDE, around[-1].id if around else 0, name, "", since_ns)
        inner = [
            replace(work, parent=OUTSIDE) if work.parent in (0, own.parent) else work
            for work in opened[len(around) :]
        ]
        return [*around, own, *inner]

    def read(self, parts: Sequence[Segment], watched: frozenset[int]) -> None:
        """Read on to the end.

        Args:
            parts: Files of this process.
            watched: Spans of which to note whether they ended.

        Raises:
            OSError: A file cannot be read.
        """
        self._watched = watched
        self._finished &= watched
        by_number = {part.number: part for part in parts}
        size = 1
        while size:
            size, chunks = self._growing.read(by_number)
            header = self._growing.header
            if self.member is None and header is not None:
                self.member = Member(header, rank=header.rank)
            for chunk in chunks:
                self.rows(chunk.body)

    def taker(self, known: Definition) -> Callable[[Any], object]:
        """Spans are all taken; of events those about the process."""
        if not known.event:
            return self.guarded(self._span, known)
        take = self._events.get(known.name)
        return _pass if take is None else self.guarded(take, known)

    def service(self, row: list[Any]) -> None:
        """Take definitions, spans that are open, and the end."""
        if row[0] == "def":
            self.define(row)
        elif row[0] == "open":
            _, number, start, span, parent = row
            self._opened[span] = (self.definitions[number].name, self._ns(start), parent)
        elif row[0] == "end":
            self.ended = True
            if self._known.role == DRIVER and not self._known.left_ns:
                self._known.left_ns = self._ns(row[1])

    @property
    def _known(self) -> Member:
        assert self.member is not None  # noqa: S101 - there are no rows before the header
        return self.member

    def _ns(self, value: Any) -> int:
        if type(value) is not int or not -_TIME_MAX < value < _TIME_MAX:
            raise ValueError("time")
        return self._known.header.mono_ns + value

    def _left(self, known: Definition, row: Any) -> None:
        self._known.left_ns = self._ns(row.time) - round(known.value(row, "since_s") * 1e9)

    def _process(self, known: Definition, row: Any) -> None:
        if not self._known.role:
            self._known.role = str(known.value(row, "role")).rpartition(".")[2]

    def _trajectories(self, known: Definition, row: Any) -> None:
        self.trained = True
        self.queued = self.queued or known.value(row, "queue_group") is not None

    def _session(self, known: Definition, row: Any) -> None:
        self.trained, self._known.returned = True, False
        self._between.start(self._ns(row.time))
        for name in ("group_size", "filters", "rank"):
            value = known.value(row, name)
            if type(value) is int:
                setattr(self._known, name, value)

    def _session_end(self, _: Definition, row: Any) -> None:
        self._known.returned = True
        self._between.end(self._ns(row.time))

    def _selected(self, known: Definition, row: Any) -> None:
        self._known.sifting.selected(partial(known.value, row))

    def _span(self, known: Definition, row: Any) -> None:
        member, name, duration = self._known, known.name, row.duration
        end_ns = member.header.mono_ns + row.start + duration
        member.last_ns = max(member.last_ns, end_ns)
        self._opened.pop(row.span, None)
        if row.span in self._watched:
            self._finished.add(row.span)
        self._turns.pop(row.span, None)
        self._aside_ns.pop(row.span, None)
        if name == names.STEP.name:
            self.trained, member.returned = True, False
        elif name == names.TURN.name:
            if len(self._turns) >= _TURNS:
                self._turns.clear()
            batch = known.value(row, "batch") if "batch" in known.attributes else row.parent
            self._turns[batch] += 1
        elif name in _ASIDE and row.parent in self._watched:
            self._aside_ns[row.parent] += duration
        if name in FINE:
            member.active_ns = max(member.active_ns, end_ns)
            if name == names.TRAJECTORY.name:
                member.trajectories.append(end_ns)
        elif name in AROUND:
            member.sifting.span(name, partial(known.value, row))
            for gap in self._between.add(name, end_ns - duration, end_ns):
                _add(member, (BETWEEN, ""), gap)
        _add(member, (name, ""), duration)
        detail = next((attribute for attribute in _DETAILS if attribute in known.attributes), None)
        text = None if detail is None else known.value(row, detail)
        if type(text) is str and text:
            _add(member, (name, _cut(text)), duration)


def _pass(row: Any) -> None:
    """Leave a row out."""


def _add(member: Member, key: tuple[str, str], duration: int) -> None:
    past = member.past.get(key)
    if past is None:
        past = member.past[key] = Past()
    past.add(duration)


def _cut(detail: str) -> str:
    """As the open-span table has it."""
    return detail.encode("utf-8", "replace")[:_DETAIL_B].decode("utf-8", "ignore")
