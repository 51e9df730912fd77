"""One journal, read onwards as it grows, and again from where a window of it begins.

What lies before the window is forgotten, but for rows that tell of the process as a whole. Only
where chunks lie is remembered; their rows are read again from the file when they are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from rlvr_probe.model import names
from rlvr_probe.recording.decode import RowDecoder
from rlvr_probe.recording.files import Segment
from rlvr_probe.recording.fine.store import FineStore
from rlvr_probe.recording.header import Header
from rlvr_probe.recording.journal import Journal
from rlvr_probe.recording.onwards import Chunk, Onwards
from rlvr_probe.recording.packed import Source
from rlvr_probe.recording.segment import whole_chunks
from rlvr_probe.recording.types import UNSOUND, decode_row

__all__ = ["Tail"]

_KEPT: Final = frozenset(
    name.name
    for name in (
        names.PROCESS, names.STARTED, names.LEFT, names.SESSION, names.SESSION_END,
        names.DEVICES_USED, names.DEVICE,
    )
)  # fmt: skip
"""Events that tell of a process as a whole, and are a few."""

_SLICE_B: Final = 256 * 1024
_TOGETHER_NS: Final = 2_000_000_000
"""Chunks of so long a time are one piece of a window."""

_TIME_MAX: Final = 1 << 62


@dataclass(slots=True)
class _Piece:
    """Whole chunks that follow one another in a file.

    Attributes:
        segment: Number of the file.
        begin, end: Where they lie in it, bytes, before it is compressed.
        first_ns, last_ns: Latest end of a row up to their beginning and end, CLOCK_MONOTONIC.
        kept: Rows that later windows need too.
    """

    segment: int
    begin: int
    end: int
    first_ns: int
    last_ns: int
    kept: list[bytes] = field(default_factory=list)


class Tail:
    """One process's journal.

    Attributes:
        last_ns: Latest end of a row that was read, CLOCK_MONOTONIC; 0 before there is one.
        at_end: Everything was read that was there.
        ended: Its last row was read.
        steps: Ends of step spans that were read, CLOCK_MONOTONIC; whoever deals with them takes
            them out.
        is_sidecar: Whether it told so.
        hz: How often a sidecar reads its devices, 1/s, as it told last.
    """

    def __init__(self, process: str) -> None:
        """Read nothing yet."""
        self.last_ns = 0
        self.at_end = self.ended = self.is_sidecar = False
        self.steps: list[int] = []
        self.hz = 1.0
        self._onwards = Onwards(process, _SLICE_B)
        self._pieces: list[_Piece] = []
        self._kept: list[bytes] = []
        self._defined: dict[int, bytes] = {}
        self._names: dict[bytes, tuple[str, tuple[str, ...]]] = {}
        self._lost: dict[str, bytes] = {}

    @property
    def header(self) -> Header | None:
        """Its header, once it was read."""
        return self._onwards.header

    @property
    def lines(self) -> int:
        """How many were read, as the process counts them."""
        return self._onwards.lines

    def close(self) -> None:
        """Close the file."""
        self._onwards.close()

    def read(self, parts: Mapping[int, Segment]) -> int:
        """Read on by 256 KiB at most; how many bytes.

        Args:
            parts: Files of this process by number, listed just now.

        Raises:
            OSError: A file cannot be read.
            RecordingError: The header is of another format than this version's.
        """
        size, chunks = self._onwards.read(parts)
        self.at_end = not size
        for chunk in chunks:
            self._rows(chunk)
        return size

    def _rows(self, chunk: Chunk) -> None:
        lines = chunk.body.split(b"\n")
        lines.pop()
        first_ns = self.last_ns
        kept = list[bytes]()
        known = self._names
        for line in lines:
            if line.startswith(b'["'):
                self._service(line)
                continue
            told = known.get(line[1 : line.find(b",")])
            if told is not None:
                self._special(line, *told, kept)
        self._pass(lines[-1])
        piece = self._pieces[-1] if self._pieces else None
        if (
            piece is not None
            and (piece.segment, piece.end) == (chunk.segment, chunk.begin)
            and self.last_ns - piece.first_ns < _TOGETHER_NS
        ):
            piece.end, piece.last_ns = chunk.end, self.last_ns
            piece.kept += kept
        else:
            self._pieces.append(
                _Piece(chunk.segment, chunk.begin, chunk.end, first_ns, self.last_ns, kept)
            )

    def _service(self, line: bytes) -> None:
        if line.startswith((b'["def",', b'["lost",', b'["end",')):
            try:
                row = decode_row(line)
                if row[0] == "def":
                    _, number, _, name, attributes = row
                    self._defined[int(number)] = line
                    if name in _KEPT or name == names.STEP.name:
                        self._names[b"%d" % number] = (name, tuple(attributes))
                elif row[0] == "lost":
                    self._lost[str(row[2])] = line
                else:
                    self.ended = True
            except UNSOUND:
                pass

    def _special(
        self, line: bytes, name: str, attributes: tuple[str, ...], kept: list[bytes]
    ) -> None:
        if name == names.STEP.name:
            end_ns = self._end(line)
            if end_ns is not None:
                self.steps.append(end_ns)
            return
        kept.append(line)
        try:
            values = dict(zip(attributes, decode_row(line)[3:], strict=False))
        except UNSOUND:
            return
        if name == names.PROCESS.name:
            self.is_sidecar = self.is_sidecar or values.get("role") == names.SIDECAR
        elif name == names.DEVICE.name:
            hz = values.get("hz")
            self.hz = hz if isinstance(hz, float | int) and 0.01 <= hz <= 100 else self.hz

    def _pass(self, line: bytes) -> None:
        """Take note of the time of the last row of a chunk: they are written as they end."""
        end_ns = self._end(line)
        if end_ns is not None:
            self.last_ns = max(self.last_ns, end_ns)

    def _end(self, line: bytes) -> int | None:
        """When what a row tells of ended, CLOCK_MONOTONIC; None if it does not say."""
        try:
            row = decode_row(line)
            if self.header is None or row[0] == "def":
                return None
            time_ns = row[2] if row[0] == "open" else row[1]
            # A span has its length where an event has its parent.
            if type(row[0]) is int and b'"span"' in self._defined.get(row[0], b"")[:24]:
                time_ns += row[2]
            found = self.header.mono_ns + int(time_ns)
            return found if 0 <= found < _TIME_MAX else None
        except UNSOUND:
            return None

    # ---------------------------------------------------------------- the window

    def forget(self, before_ns: int) -> None:
        """Let the window begin at what ended at ``before_ns``, CLOCK_MONOTONIC, or later."""
        count = 0
        for piece in self._pieces:
            if piece.last_ns >= before_ns:
                break
            self._kept += piece.kept
            count += 1
        del self._pieces[:count]

    def journal(
        self,
        parts: Mapping[int, Segment],
        watched: frozenset[int],
        store: FineStore,
        since_ns: int = 0,
    ) -> Journal:
        """What the process told in the window, and of itself before.

        Args:
            parts: Its files by number.
            watched: Spans of which to note whether they ended.
            store: Gets the fine rows.
            since_ns: Of what ended before, CLOCK_MONOTONIC, only what it told of itself.

        Raises:
            OSError: A file cannot be read any more.
        """
        mono_ns, number = 0, 0
        if self.header is not None:
            mono_ns, number = self.header.mono_ns, store.number(self.header.process)
        decoder = RowDecoder(mono_ns, watched, store.sink, number)
        known = [*self._defined.values(), *self._lost.values(), *self._kept]
        known += (line for piece in self._pieces if piece.last_ns < since_ns for line in piece.kept)
        decoder.rows(b"".join(line + b"\n" for line in known))
        for lines in self._lines_of(parts, since_ns):
            decoder.rows(lines)
        journal = decoder.finish()
        journal.last_ns = max(journal.last_ns, self.last_ns)
        return journal

    def _lines_of(self, parts: Mapping[int, Segment], since_ns: int) -> Iterator[bytes]:
        by_segment = dict[int, list[_Piece]]()
        for piece in self._pieces:
            if piece.last_ns >= since_ns:
                by_segment.setdefault(piece.segment, []).append(piece)
        for number, pieces in by_segment.items():
            if number not in parts:
                continue  # deleted, and the window with it
            with parts[number].open() as source:
                at = 0
                for piece in pieces:
                    source.skip(piece.begin - at)
                    data = _exactly(source, piece.end - piece.begin)
                    at = piece.end
                    for begin, middle, _ in whole_chunks(data):
                        yield data[begin:middle]


def _exactly(source: Source, size: int) -> bytes:
    parts = list[bytes]()
    while size > 0 and (data := source.read(min(size, _SLICE_B))):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)
