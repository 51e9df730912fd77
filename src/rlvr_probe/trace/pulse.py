"""What each process of a run is at now, and how long such things took it before.

For who asks whether a run is stuck: journals are read once, and onwards when asked again, and of
what ended only durations are kept. Whatever does not fit its checksum is passed over; who reads the
whole recording counts it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from rlvr_probe.model import names
from rlvr_probe.model.trace import ProcessState
from rlvr_probe.trace.files import Segment, list_files
from rlvr_probe.trace.header import Header
from rlvr_probe.trace.liveness import Machine
from rlvr_probe.trace.onwards import Onwards
from rlvr_probe.trace.opentable import Table, read_table

__all__ = ["Member", "Past", "Pulse", "Work"]

_SLICE_B: Final = 1024 * 1024
_DECODE: Final = msgspec.json.Decoder().decode
_UNSOUND: Final = (
    ValueError, TypeError, LookupError, OverflowError, RecursionError, msgspec.DecodeError,
)  # fmt: skip
_DETAILS: Final = ("function", "method", "tool", "label")
"""Attributes that tell one such span from another, as the open-span table has it."""
_TIME_MAX: Final = 1 << 62
_TURNS: Final = 100_000
"""Trajectories that turns are counted of: of one that goes on, and of damaged ones for good."""


@dataclass(slots=True)
class Past:
    """How long spans of one kind took that ended.

    Attributes:
        count: All of them.
        longest_ns: Of all of them.
        recent_ns: The last thousand.
    """

    count: int = 0
    longest_ns: int = 0
    recent_ns: deque[int] = field(default_factory=lambda: deque(maxlen=1_000))

    def add(self, duration_ns: int) -> None:
        """Take note of one more."""
        self.count += 1
        if duration_ns > self.longest_ns:
            self.longest_ns = duration_ns
        self.recent_ns.append(duration_ns)


@dataclass(frozen=True, slots=True)
class Work:
    """A span that has not ended.

    Attributes:
        start_ns: CLOCK_MONOTONIC.
        step, thread: None where they are not known; the thread is a native id.
        turns: Engine calls that ended inside it.
    """

    id: int
    parent: int
    name: str
    detail: str
    start_ns: int
    step: int | None = None
    thread: int | None = None
    turns: int = 0


@dataclass(slots=True)
class Member:
    """One process, as it was when it was last read.

    Attributes:
        work: What it is at, outer spans first.
        past: By name of a span and detail; without a detail, all of that name.
        last_ns: Latest end of anything that it recorded, CLOCK_MONOTONIC; 0 before there is one.
        heartbeat_ns: Latest sign of life of its flush thread, or of any row.
        role: What it is to its job, for example the class of its actor.
        rank: As its training told, else its environment.
        trained: Whether it took part in a training, as the whole reader says it.
    """

    header: Header
    state: ProcessState = "unknown"
    work: Sequence[Work] = ()
    past: dict[tuple[str, str], Past] = field(default_factory=dict)
    last_ns: int = 0
    heartbeat_ns: int = 0
    role: str = ""
    rank: int | None = None
    trained: bool = False


class Pulse:
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
        for one in self._journals.values():
            one.close()

    def read(self) -> list[Member]:
        """Read what is new; the processes of the job, by the time that they began.

        Raises:
            RecordingError: There is no recording, or it is of another format than this version's.
            OSError: A file cannot be read.
        """
        files = list_files(self.folder)
        found = list[Member]()
        for process, parts in files.segments.items():
            one = self._journals.setdefault(process, _Journal(process))
            path = files.tables.get(process)
            # The table before the journal: a span that ends in between is found as a finished row.
            table = None if path is None else read_table(path, process)
            one.read(parts, frozenset(slot.span for slot in table.slots) if table else frozenset())
            if one.member is not None and one.member.role != names.SIDECAR:
                found.append(self._member(one, one.member, table))
        return sorted(found, key=lambda member: member.header.epoch_ns)

    def _member(self, one: _Journal, member: Member, table: Table | None) -> Member:
        ended = one.ended or (table is not None and table.ended)
        member.state = self.machine.state(member.header, ended)
        member.trained = one.trained and not one.queued
        beat_ns = 0 if table is None else table.heartbeat_ns
        member.heartbeat_ns = max(beat_ns, member.last_ns, member.header.mono_ns)
        member.work = () if ended else sorted(one.open(table), key=lambda work: work.start_ns)
        return member


class _Journal:
    """The journal of one process, read onwards."""

    def __init__(self, process: str) -> None:
        self.member: Member | None = None
        self.ended = self.trained = self.queued = False
        self._onwards = Onwards(process, _SLICE_B)
        self._definitions: dict[int, tuple[str, bool, Mapping[str, int]]] = {}
        self._opened: dict[int, tuple[str, int, int]] = {}
        self._watched = frozenset[int]()
        self._finished = set[int]()
        self._turns: Counter[int] = Counter()

    def close(self) -> None:
        self._onwards.close()

    def open(self, table: Table | None) -> Iterator[Work]:
        """Spans that have not ended: of the table, and finer ones that were journaled as open."""
        slots = () if table is None else table.slots
        known = {slot.span for slot in slots}
        for slot in slots:
            if slot.span not in self._finished:
                yield Work(
                    slot.span, slot.parent, slot.name, slot.detail, slot.start_ns, slot.step,
                    slot.thread, self._turns[slot.span],
                )  # fmt: skip
        for span, (name, start_ns, parent) in self._opened.items():
            if span not in known:
                yield Work(span, parent, name, "", start_ns, turns=self._turns[span])

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
            size, chunks = self._onwards.read(by_number)
            header = self._onwards.header
            if self.member is None and header is not None:
                self.member = Member(header, rank=header.rank)
            for chunk in chunks:
                self._rows(chunk.body)

    def _rows(self, body: bytes) -> None:
        assert self.member is not None  # noqa: S101 - there are no chunks before the header
        for line in body.split(b"\n")[:-1]:
            try:
                self._row(_DECODE(line), self.member)
            except _UNSOUND:
                pass

    def _row(self, row: list[Any], member: Member) -> None:
        tag = row[0]
        if tag == "def":
            _, number, kind, name, attributes = row
            begin = 6 if kind == "span" else 3
            places = {str(one): at for at, one in enumerate(attributes, begin)}
            self._definitions[number] = (str(name), kind == "span", places)
        elif tag == "open":
            _, number, start, span, parent = row
            name = self._definitions[number][0]
            self._opened[span] = (name, _time(start, member), parent)
        elif tag == "end":
            self.ended = True
        elif type(tag) is int:
            name, is_span, where = self._definitions[tag]
            if is_span:
                self._span(row, name, where, member)
            elif name == names.PROCESS.name and not member.role:
                member.role = str(row[where["role"]]).rpartition(".")[2]
            elif name == names.TRAJECTORIES.name:
                self.trained = True
                if "queue_group" in where and row[where["queue_group"]] is not None:
                    self.queued = True
            elif name == names.SESSION.name:
                self.trained = True
                if type(rank := row[where["rank"]]) is int:
                    member.rank = rank

    def _span(self, row: list[Any], name: str, places: Mapping[str, int], member: Member) -> None:
        start, duration, span, parent = row[1:5]
        if type(duration) is not int or not 0 <= duration < _TIME_MAX:
            return
        member.last_ns = max(member.last_ns, _time(start, member) + duration)
        self._opened.pop(span, None)
        if span in self._watched:
            self._finished.add(span)
        self._turns.pop(span, None)
        if name == names.STEP.name:
            self.trained = True
        elif name == names.TURN.name:
            if len(self._turns) >= _TURNS:
                self._turns.clear()
            self._turns[row[places["batch"]] if "batch" in places else parent] += 1
        detail = next((row[places[one]] for one in _DETAILS if one in places), None)
        for key in ((name, ""), (name, detail)) if type(detail) is str else ((name, ""),):
            past = member.past.get(key)
            if past is None:
                past = member.past[key] = Past()
            past.add(duration)


def _time(value: Any, member: Member) -> int:
    if type(value) is not int or not -_TIME_MAX < value < _TIME_MAX:
        raise ValueError("time")
    return member.header.mono_ns + value
