"""Reads a journal and leaves its fine rows where they are, for somebody who reads them faster.

Every sum is checked as :mod:`rlvr_probe.recording.chunks` does, a chunk at a time instead of a
line.
Rows of one trajectory (its span, turns, tool calls, verifications, and what says that one of these
is open) are counted and stay in their file; all others are decoded. Where a file holds anything
that must not be used, is compressed or may still grow, its fine rows go to a file of their own.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from rlvr_probe.model import names, schema
from rlvr_probe.recording.chunks import CHUNK_LIMIT_B, Chunks, whole_chunks
from rlvr_probe.recording.decode import RowDecoder
from rlvr_probe.recording.files import Segment
from rlvr_probe.recording.header import Header
from rlvr_probe.recording.journal import Journal
from rlvr_probe.recording.lines import Lines
from rlvr_probe.recording.liveness import Machine
from rlvr_probe.recording.load import read_segment
from rlvr_probe.recording.lone import KeyColumn
from rlvr_probe.recording.packed import Source

__all__ = ["SLICE", "Form", "KeyTexts", "LeavingReader", "LeftFile", "LeftRows", "Unfit"]

SLICE: Final = 4_096
"""Keys to a line."""

_BLOCK_B: Final = 8 * 1024 * 1024
_SUM: Final = b'\n["sum",'
_DEFINITION: Final = b'["def",'

_NEEDED: Final = {
    names.TRAJECTORY.name: frozenset[str](),
    names.TURN.name: frozenset(("turn", "prompt_tokens", "response_tokens")),
    names.TOOL_CALL.name: frozenset[str](),
    names.VERIFY.name: frozenset[str](),
}
"""Fine rows by name, and the attributes without which they say nothing of one trajectory."""


class Unfit(Exception):
    """The rows of this recording cannot be left where they are; the text says why."""


class _Odd(Exception):
    """Those of this process cannot: its definitions change."""


class _Unsound(Exception):
    """A file holds something whose sum does not fit."""


@dataclass(frozen=True, slots=True)
class Form:
    """A definition of fine rows."""

    number: int
    name: str
    attributes: tuple[str, ...]

    @property
    def prefixes(self) -> tuple[bytes, bytes]:
        """What a row of it begins with, and a row that says that one is open."""
        return b"[%d," % self.number, b'["open",%d,' % self.number


@dataclass(frozen=True, slots=True)
class LeftFile:
    """A file in which fine rows were left.

    Attributes:
        path: Where it is; nothing in it is unsound.
        forms: What a fine row in it can be.
        rows: How many there are.
    """

    path: Path
    forms: frozenset[Form]
    rows: int


@dataclass(slots=True)
class LeftRows:
    """What was left of one process.

    Attributes:
        number: Of the process, in the order of reading.
        decoder: Has decoded the rest, and takes fine rows that are not as they usually are.
    """

    number: int
    header: Header
    decoder: RowDecoder
    files: list[LeftFile] = field(default_factory=list)


class KeyTexts(KeyColumn):
    """Keys as they are, of which :attr:`number` is known once they are elsewhere."""

    __slots__ = ("number", "size", "texts")

    def __init__(self) -> None:
        """Hold none."""
        self.texts: list[str | None] = []
        self.size = 0
        self.number = -1

    def append(self, key: str | None) -> None:
        """Add a key at the end."""
        self.texts.append(key)
        self.size += 1

    def extend(self, keys: Iterable[str | None]) -> None:
        """Add keys at the end."""
        begun = len(self.texts)
        self.texts.extend(keys)
        self.size += len(self.texts) - begun

    def __len__(self) -> int:
        return self.size


class LeavingReader:
    """Decodes processes for :func:`rlvr_probe.recording.load.load`, and leaves their fine rows.

    Attributes:
        left: By process key.
        keys: File of the keys of all batches, in lines of ``SLICE``: the number of the column, the
            place of the first one in it, and the keys.
        longest_b: The longest of these lines, bytes.
    """

    def __init__(self, folder: Path, done: Callable[[LeftRows], object] = lambda _: None) -> None:
        """Leave rows.

        Args:
            folder: Private; gets what needs a file of its own.
            done: Called with what was left of each process.
        """
        self._done = done
        self.left: dict[str, LeftRows] = {}
        self.keys = folder / "keys.json"
        self.longest_b = 0
        self._folder = folder
        self._file: BinaryIO | None = None
        self._pending: list[KeyTexts] = []
        self._numbers = 0
        self._encode = msgspec.json.Encoder().encode

    def decode(
        self, header: Header, parts: Sequence[Segment], watched: frozenset[int], machine: Machine
    ) -> tuple[Journal, int]:
        """As :func:`rlvr_probe.recording.load.decode`, without the fine rows.

        Raises:
            Unfit: The rows of the run cannot be left.
        """
        # A process that may go on writes to its last file while somebody else reads it.
        alive = machine.state(header, False) in ("running", "unknown")
        try:
            return self._decode(header, parts, watched, alive=alive, leave=True)
        except _Odd:
            return self._decode(header, parts, watched, alive=alive, leave=False)

    def close(self) -> None:
        """Write what is still to be written."""
        self._spill()
        if self._file is not None:
            self._file.close()

    def column(self) -> KeyTexts:
        """A column for the keys of a batch; those of the ones before go to the file."""
        self._spill()
        self._pending.append(KeyTexts())
        return self._pending[-1]

    def _spill(self) -> None:
        for one in self._pending:
            if one.size:
                if self._file is None:
                    self._file = self.keys.open("wb")
                one.number, self._numbers = self._numbers, self._numbers + 1
                self._write(self._file, one)
                one.texts = []
        self._pending.clear()

    def _write(self, file: BinaryIO, keys: KeyTexts) -> None:
        for begin in range(0, keys.size, SLICE):
            texts = keys.texts[begin : begin + SLICE]
            try:
                line = self._encode({"k": keys.number, "begin": begin, "keys": texts})
            except UnicodeEncodeError:
                raise Unfit("a key is no text that a file can hold") from None
            file.write(line + b"\n")
            self.longest_b = max(self.longest_b, len(line))

    def _decode(
        self,
        header: Header,
        parts: Sequence[Segment],
        watched: frozenset[int],
        *,
        alive: bool,
        leave: bool,
    ) -> tuple[Journal, int]:
        decoder = RowDecoder(header.mono_ns, watched)
        decoder.keys = self.column
        decoder.journal.alone.keys = KeyTexts()
        left = LeftRows(len(self.left), header, decoder)
        scan = _Scan()
        seen = 0
        for part in parts:
            try:
                if leave:
                    seen += self._segment(left, scan, part, growing=alive and part is parts[-1])
                else:
                    seen += read_segment(decoder, part)
            except OSError:
                decoder.journal.skipped["unreadable_file"] += 1
        self.left[header.process] = left
        self._done(left)
        return decoder.journal, seen

    def _segment(self, left: LeftRows, scan: _Scan, part: Segment, *, growing: bool) -> int:
        """Decode one file but for its fine rows; lines that it held, as far as can be told."""
        try:
            with part.open() as file:
                scan.read(file)
                path = file.plain
        except _Unsound:
            return self._repaired(left, scan, part)
        decoder = left.decoder
        for line in scan.coarse:
            decoder.line(line)
        decoder.journal.skipped["torn_rows"] += scan.torn
        if scan.left:
            if path is None or scan.torn or (growing and not decoder.journal.ended):
                path = self._new(part)
                with part.open() as file, path.open("wb") as copy:
                    rest = scan.sound_b
                    while rest > 0 and (block := file.read(min(_BLOCK_B, rest))):
                        rest -= copy.write(block)
            left.files.append(LeftFile(path, frozenset(scan.forms.values()), scan.left))
        return scan.lines + scan.torn

    def _repaired(self, left: LeftRows, scan: _Scan, part: Segment) -> int:
        """The same for a file of which not everything must be used."""
        decoder, path, rows = left.decoder, self._new(part), 0
        with part.open() as file, path.open("wb") as copy:
            chunks = Chunks(Lines(file, file.size_b))
            for chunk in chunks:
                if chunks.lines > 1:
                    for line in scan.coarse_of(chunk):
                        decoder.line(line)
                    fine = scan.fine_of(chunk)
                    copy.writelines(line + b"\n" for line in fine)
                    rows += len(fine)
        decoder.journal.skipped.update(
            damaged_rows=chunks.damaged,
            repeated_rows=chunks.repeated,
            torn_rows=chunks.torn,
            endless_file=int(chunks.given_up),
        )
        if rows:
            left.files.append(LeftFile(path, frozenset(scan.forms.values()), rows))
        return chunks.seen

    def _new(self, part: Segment) -> Path:
        return self._folder / schema.segment_name(part.process, part.number)


class _Scan:
    """Checks one file after another of a process.

    Attributes:
        forms: Definitions of fine rows so far, by number.
        lines: Lines of the file up to its last sum.
        left: Fine rows among them.
        coarse: The others.
        torn: Lines behind the last sum.
        sound_b: Bytes up to it.
    """

    def __init__(self) -> None:
        self.forms: dict[int, Form] = {}
        self.lines = self.left = self.torn = self.sound_b = 0
        self.coarse: list[bytes] = []
        self._known: dict[int, tuple[object, ...]] = {}
        self._prefixes: tuple[bytes, ...] = ()
        self._coarse = re.compile(rb"\n(.*)")
        self._decode = msgspec.json.Decoder().decode

    def read(self, file: Source) -> None:
        """Take a file.

        Raises:
            _Unsound: It holds more than whole chunks and a torn end.
            _Odd: A definition means something else than before.
        """
        self.lines = self.left = self.torn = self.sound_b = 0
        self.coarse = []
        rest, size = b"", file.size_b
        while size > 0 and (block := file.read(min(_BLOCK_B, size))):
            size -= len(block)
            data, end = rest + block, 0
            for begin, total, end in whole_chunks(data):
                self._chunk(data[begin:total], data[total:end])
            rest = data[end:]
            self.sound_b += end
            if len(rest) > CHUNK_LIMIT_B:
                raise _Unsound
        if rest.startswith(_SUM[1:]):
            raise _Unsound
        self.torn = rest.count(b"\n") + (not rest.endswith(b"\n") and bool(rest))

    def coarse_of(self, lines: Sequence[bytes]) -> Iterator[bytes]:
        """Those of a chunk that are decoded; definitions among them are noted.

        Raises:
            _Odd: A definition means something else than before, or comes behind its rows.
        """
        if any(line.startswith(_DEFINITION) for line in lines):
            self._define(lines)
        return (line for line in lines if not line.startswith(self._prefixes or (b"\n",)))

    def fine_of(self, lines: Sequence[bytes]) -> list[bytes]:
        """Those of a chunk that are left."""
        return [line for line in lines if line.startswith(self._prefixes or (b"\n",))]

    def _chunk(self, chunk: bytes, total: bytes) -> None:
        """Take a chunk and the line with its sum.

        Raises:
            _Unsound: The sum does not fit.
        """
        held = chunk.count(b"\n")
        self.lines += held
        if schema.sum_row(self.lines, zlib.crc32(chunk)) != total:
            raise _Unsound
        if self.lines == 1:  # the header
            return
        if _DEFINITION in chunk:
            self._define(chunk.split(b"\n")[:-1])
        coarse = self._coarse.findall(b"\n" + chunk[:-1])
        self.left += held - len(coarse)
        self.coarse += coarse

    def _define(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            if line.startswith(_DEFINITION):
                try:
                    row = self._decode(line)
                    _, number, kind, name, attributes = row
                    said = (kind, name, tuple(attributes))
                except (ValueError, TypeError, msgspec.DecodeError, RecursionError):
                    continue
                if type(number) is not int:
                    continue
                if self._known.setdefault(number, said) != said:
                    raise _Odd
                if _is_fine(kind, name, attributes):
                    self._add(Form(number, name, tuple(attributes)), lines)

    def _add(self, form: Form, lines: Iterable[bytes]) -> None:
        if form.number in self.forms:
            return
        self.forms[form.number] = form
        self._prefixes += form.prefixes
        fine = b"|".join(map(re.escape, self._prefixes))
        self._coarse = re.compile(rb"\n(?!%b)(.*)" % fine)
        # A row before its definition means nothing; somebody else would not see that.
        if any(
            line.startswith(form.prefixes) for source in (self.coarse, lines) for line in source
        ):
            raise _Odd


def _is_fine(kind: object, name: object, attributes: Sequence[object]) -> bool:
    if kind != "span" or not isinstance(name, str) or name not in _NEEDED:
        return False
    given = set(attributes)
    texts = all(type(one) is str for one in attributes)
    return texts and len(given) == len(attributes) and _NEEDED[name] <= given
