"""The journal of one process, read on as it grows, and again from where a window of it starts.

What lies before the window is forgotten, but for rows about the process as a whole. Only where
chunks lie is remembered; their rows are read again from the file when needed. Rows that do not fit
their sum, or were there before, are skipped: the reader of the whole recording counts them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from rlvr_probe.model import names
from rlvr_probe.model.trace import ProcessState
from rlvr_probe.recording.chunks import Chunk, Chunks, Source, read_chunks
from rlvr_probe.recording.decode import Definition, RowDecoder
from rlvr_probe.recording.files import Segment
from rlvr_probe.recording.header import Header, parse_header
from rlvr_probe.recording.journal import Journal, JournalDecoder
from rlvr_probe.recording.opentable import Table
from rlvr_probe.recording.store import FineStore

__all__ = ["Follower", "GrowingJournal"]

_KEPT: Final = frozenset(
    name.name
    for name in (
        names.PROCESS, names.STARTED, names.LEFT, names.SESSION, names.SESSION_END,
        names.DEVICES_USED, names.DEVICE,
    )
)  # fmt: skip
"""Events about a process as a whole, of which there are few."""

_SLICE_B: Final = 256 * 1024
_TOGETHER_NS: Final = 2_000_000_000
"""Chunks of so long a time are one piece of a window."""

_TIME_MAX: Final = 1 << 62
_line: Final = msgspec.json.Encoder().encode


class GrowingJournal:
    """Reads the journal of one process; one thread.

    Attributes:
        header: Once it was read; before, there are no chunks.
        segment: Number of the file that was read last.
    """

    def __init__(self, process: str, slice_b: int) -> None:
        """Read nothing yet, and later ``slice_b`` bytes at a time."""
        self.header: Header | None = None
        self.segment = -1
        self._process = process
        self._slice_b = slice_b
        self._open = ExitStack()
        self._source: Source | None = None
        self._chunks = Chunks()
        self._lines_before = 0

    @property
    def lines(self) -> int:
        """Lines that were read, as the process counts them: without sums."""
        return self._lines_before + self._chunks.lines

    def close(self) -> None:
        """Close the file."""
        self._open.close()
        self._source = None

    def read(self, parts: Mapping[int, Segment]) -> tuple[int, list[Chunk]]:
        """Read a slice; how many bytes it has, 0 at the end, and the chunks that are whole now.

        Args:
            parts: Files of this process by number, listed just now.

        Raises:
            OSError: A file cannot be read.
            RecordingError: The header is of another format than this version's.
        """
        while not self._chunks.given_up:
            if self._source is None and not self._next(parts):
                break
            data = b"" if self._source is None else self._source.read(self._slice_b)
            if data:
                return len(data), list(self._rows(self._chunks.feed(data)))
            # A later file was started when this one was complete.
            if not any(number > self.segment for number in parts):
                break
            self.close()
        return 0, []

    def _next(self, parts: Mapping[int, Segment]) -> bool:
        following = [number for number in parts if number > self.segment]
        if not following:
            return False
        number = min(following)
        self._source = self._open.enter_context(parts[number].open())
        self.segment = number
        self._lines_before = self.lines
        self._chunks = Chunks()
        return True

    def _rows(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Those that have rows; takes note of the header."""
        for chunk in chunks:
            if chunk.lines > 1 and self.header is not None:
                yield chunk
            elif chunk.lines == 1 and self.header is None:
                header = parse_header(chunk.body[:-1], f"the journal of {self._process}")
                if header is not None and header.process == self._process:
                    self.header = header


@dataclass(slots=True)
class _Piece:
    """Whole chunks that follow one another in a file.

    Attributes:
        segment: Number of the file.
        begin: Where they start in it, uncompressed, bytes.
        end: Where they end there, bytes.
        first_ns, last_ns: Latest end of a row before them and up to their end, CLOCK_MONOTONIC.
        kept: Rows that later windows need too.
    """

    segment: int
    begin: int
    end: int
    first_ns: int
    last_ns: int
    kept: list[bytes] = field(default_factory=list)


class Follower(RowDecoder):
    """One process's journal.

    Attributes:
        last_ns: Latest end of a row that was read, CLOCK_MONOTONIC; 0 before there is one.
        at_end: Everything was read that was there.
        ended: Its last row was read.
        steps: Ends of step spans that were read, CLOCK_MONOTONIC; the caller removes those it
            has dealt with.
        is_sidecar: Whether it said so.
        hz: How often a sidecar reads its devices, 1/s, as it said last.
        parts: Its files by number, as they were listed last.
        table: Its open-span table, read before its journal was.
        state: What became of it, found out before its journal was read: what it wrote until then is
            there.
        known_ns: Everything that ended before was read, CLOCK_MONOTONIC; -1 if that is unknown.
        trained: It took part in the training, at whatever time.
    """

    def __init__(self, process: str) -> None:
        """Read nothing yet."""
        super().__init__()
        self.last_ns = 0
        self.at_end = self.ended = self.is_sidecar = False
        self.steps: list[int] = []
        self.hz = 1.0
        self.parts: Mapping[int, Segment] = {}
        self.table: Table | None = None
        self.state: ProcessState = "unknown"
        self.known_ns = -1
        self.trained = False
        self._growing = GrowingJournal(process, _SLICE_B)
        self._pieces: list[_Piece] = []
        self._kept: list[bytes] = []
        self._new: list[bytes] = []
        self._last: deque[Any] = deque(maxlen=1)
        self._defined: dict[int, bytes] = {}
        self._lost: dict[str, bytes] = {}

    @property
    def header(self) -> Header | None:
        """Its header, once it was read."""
        return self._growing.header

    @property
    def lines(self) -> int:
        """How many were read, as the process counts them."""
        return self._growing.lines

    def close(self) -> None:
        """Close the file."""
        self._growing.close()

    @property
    def ended_in_order(self) -> bool:
        """Whether its journal or its table says that it closed its journal."""
        return self.ended or (self.table is not None and self.table.ended)

    def read(self) -> int:
        """Read on by 256 KiB at most; how many bytes.

        Raises:
            OSError: A file cannot be read.
            RecordingError: The header is of another format than this version's.
        """
        size, chunks = self._growing.read(self.parts)
        self.at_end = not size
        for chunk in chunks:
            self._chunk(chunk)
        return size

    def taker(self, known: Definition) -> Callable[[Any], object]:
        """Ends of steps are noted; events of the process are kept, of other rows the last."""
        if known.event and known.name in _KEPT:
            return self.guarded(self._keep, known)
        if not known.event and known.name == names.STEP.name:
            return self._step
        return self._last.append

    def service(self, row: list[Any]) -> None:
        """Keep definitions and what was lost."""
        if row[0] == "def":
            self.define(row)
            self._defined[row[1]] = _line(row)
            return
        if row[0] == "lost":
            self._lost[str(row[2])] = _line(row)
        elif row[0] == "end":
            self.ended = True
        self._note(row[2] if row[0] == "open" else row[1])

    def _chunk(self, chunk: Chunk) -> None:
        first_ns, segment = self.last_ns, self._growing.segment
        self.rows(chunk.body)
        while self._last:  # rows are written as they end
            self._note(_end(self._last.pop()))
        piece = self._pieces[-1] if self._pieces else None
        if (
            piece is None
            or (piece.segment, piece.end) != (segment, chunk.begin)
            or self.last_ns - piece.first_ns >= _TOGETHER_NS
        ):
            piece = _Piece(segment, chunk.begin, chunk.end, first_ns, self.last_ns)
            self._pieces.append(piece)
        piece.end, piece.last_ns = chunk.end, self.last_ns
        piece.kept += self._new
        self._new.clear()

    def _step(self, row: Any) -> None:
        self._last.append(row)
        if self.header is not None:
            self.steps.append(self.header.mono_ns + _end(row))

    def _keep(self, known: Definition, row: Any) -> None:
        self._last.append(row)
        self._new.append(_line(row))
        if known.name == names.PROCESS.name:
            self.is_sidecar = self.is_sidecar or known.value(row, "role") == names.SIDECAR
        elif known.name == names.DEVICE.name:
            hz = known.value(row, "hz")
            self.hz = hz if isinstance(hz, float | int) and 0.01 <= hz <= 100 else self.hz

    def _note(self, time_ns: Any) -> None:
        """Take note of a time since the header was written."""
        if self.header is not None and type(time_ns) is int and abs(time_ns) < _TIME_MAX:
            self.last_ns = max(self.last_ns, self.header.mono_ns + time_ns)

    # ---------------------------------------------------------------- the window

    def forget(self, before_ns: int) -> None:
        """Let the window start at what ended at ``before_ns``, CLOCK_MONOTONIC, or later."""
        while self._pieces and self._pieces[0].last_ns < before_ns:
            self._kept += self._pieces.pop(0).kept

    def journal(self, store: FineStore, since_ns: int = 0) -> Journal:
        """What the process recorded in the window, and of itself before.

        Args:
            store: Gets the fine rows.
            since_ns: Of what ended before, CLOCK_MONOTONIC, only what it recorded of itself.

        Raises:
            OSError: A file cannot be read any more.
        """
        mono_ns, number = 0, 0
        if self.header is not None:
            mono_ns, number = self.header.mono_ns, store.number(self.header.process)
        slots = () if self.table is None else self.table.slots
        watched = frozenset(slot.span for slot in slots)
        decoder = JournalDecoder(mono_ns, watched, store.sink, number)
        known = [*self._defined.values(), *self._lost.values(), *self._kept]
        known += (line for piece in self._pieces if piece.last_ns < since_ns for line in piece.kept)
        decoder.rows(b"".join(line + b"\n" for line in known))
        for chunk in self._chunks_of(since_ns):
            decoder.rows(chunk.body)
        journal = decoder.finish()
        journal.last_ns = max(journal.last_ns, self.last_ns)
        return journal

    def _chunks_of(self, since_ns: int) -> Iterator[Chunk]:
        by_segment = dict[int, list[_Piece]]()
        for piece in self._pieces:
            if piece.last_ns >= since_ns:
                by_segment.setdefault(piece.segment, []).append(piece)
        for number, pieces in by_segment.items():
            if number not in self.parts:
                continue  # deleted, and the window with it
            with self.parts[number].open() as source:
                at = 0
                for piece in pieces:
                    source.skip(piece.begin - at)
                    at = piece.end
                    yield from read_chunks(source, piece.end - piece.begin, Chunks())


def _end(row: Any) -> int:
    """When a row ended, ns since the header was written."""
    time_ns: int = row.time if hasattr(row, "time") else row.start + row.duration
    return time_ns
