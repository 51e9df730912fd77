"""The bytes of a segment, compressed or not, as chunks that are whole; the rest is only counted.

A sum covers every byte of its chunk and says how many lines there were up to it: what is damaged,
missing or there twice is told apart and counted, to the line wherever a sum that fits comes later.
Reading takes bounded memory and time, whatever a file holds.
"""

from __future__ import annotations

import errno
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from rlvr_probe.model import schema

__all__ = ["Chunk", "Chunks", "Source", "open_source", "read_chunks"]

CHUNK_LIMIT_B: Final = 64 * 1024 * 1024 + schema.CHUNK_B
"""What takes more memory without a sum is not a journal of ours: a row of 1,000 trajectories takes
about 10 KB."""

_LINE_B: Final = 64
"""What a line takes besides its bytes once it is decoded: a gigabyte of line feeds is a lot."""

_BLOCK_B: Final = 8 * 1024 * 1024
_BEGIN: Final = b'["sum",'
_SUM: Final = re.compile(rb'\["sum",([0-9]{1,18}),[0-9]{1,10}\]\n')

_MOST_B: Final = 4 << 30
_MOST_RATIO: Final = 100
"""What a compressed file may hold: more than that, and more than so many times its size, is no
journal of ours but made to keep readers busy."""

_GZIP: Final = 31
_UNPACKED_B: Final = 64 * 1024


class Readable(Protocol):
    """A file opened for reading bytes, or what acts like one."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, ``size`` at most; none at the end."""
        ...


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines whose sum fits; the first one of a sound file is the header alone.

    Attributes:
        body: Its lines.
        lines: How many there were up to its end, without sums.
        begin: Where it starts in the uncompressed file, bytes.
        end: Where its sum ends there, bytes.
    """

    body: bytes
    lines: int
    begin: int
    end: int


class Chunks:
    """Cuts the bytes of one file into chunks as they are read.

    Attributes:
        lines: Lines that were written up to the last sum that fits, without sums.
        repeated: Lines of chunks that were there before.
        given_up: There is no sum for so long that the rest of the file is not to be read.
    """

    def __init__(self) -> None:
        """Stand at the start of a file."""
        self.lines = self.repeated = 0
        self.given_up = False
        self._missing = self._doubtful = 0
        self._rest = b""
        self._rest_begin = 0

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """The chunks that are whole with the next bytes of the file."""
        data, end = self._rest + data, 0
        for begin, middle, end in _whole(data):
            body = data[begin:middle]
            count = body.count(b"\n")
            total = _lines_up_to(body, count, data[middle:end])
            if total is None:
                self._doubtful += count
            elif total - count < self.lines:
                self.repeated += count
            else:
                self._missing += total - count - self.lines
                self.lines, self._doubtful = total, 0
                yield Chunk(body, total, self._rest_begin + begin, self._rest_begin + end)
        self._rest_begin += end
        self._rest = data[end:]
        size = len(self._rest)
        if size * (1 + _LINE_B) > CHUNK_LIMIT_B:
            self.given_up = size + _LINE_B * self._rest.count(b"\n") > CHUNK_LIMIT_B
            self._rest = b"" if self.given_up else self._rest

    @property
    def torn(self) -> int:
        """Lines behind the last sum, the last of them perhaps without its end."""
        return self._rest.count(b"\n") + (bool(self._rest) and not self._rest.endswith(b"\n"))

    @property
    def damaged(self) -> int:
        """Lines of chunks whose sum does not fit, or that are missing."""
        return self._missing + self._doubtful

    @property
    def seen(self) -> int:
        """Lines that were written up to the end of the file, as far as is known."""
        return self.lines + self._doubtful + self.torn


def read_chunks(file: Readable, size_b: int, chunks: Chunks) -> Iterator[Chunk]:
    """Every chunk of a file that is whole.

    Args:
        file: Stands at its start.
        size_b: How much of it exists now, bytes: what a live process adds meanwhile is left for the
            next reading.
        chunks: Counts what is not.
    """
    while size_b > 0 and not chunks.given_up and (data := file.read(min(_BLOCK_B, size_b))):
        size_b -= len(data)
        yield from chunks.feed(data)


def _whole(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Start, start of its sum, and end of every chunk that ``data`` holds whole, sound or not."""
    begin = 0
    while True:
        middle = begin
        if not data.startswith(_BEGIN, begin):
            middle = data.find(b"\n" + _BEGIN, begin) + 1
            if not middle:
                return
        end = data.find(b"\n", middle) + 1
        if not end:
            return
        yield begin, middle, end
        begin = end


def _lines_up_to(body: bytes, count: int, last: bytes) -> int | None:
    """Lines of the file up to the sum ``last``, if it fits ``body``, ``count`` lines before it."""
    found = _SUM.fullmatch(last)
    total = 0 if found is None else int(found[1])
    if found is None or not total >= count > 0:
        return None
    return total if schema.sum_row(total, zlib.crc32(body)) == last else None


class Source(Protocol):
    """What lines are read from.

    Attributes:
        size_b: How much there is to read, at most, bytes.
    """

    size_b: int

    def read(self, size: int, /) -> bytes:
        """The next bytes, ``size`` at most; none at the end."""
        ...

    def skip(self, size: int, /) -> None:
        """Pass over the next ``size`` bytes."""
        ...


class _Plain:
    def __init__(self, file: BinaryIO, size_b: int) -> None:
        self.size_b = size_b
        self.read = file.read
        self._file = file

    def skip(self, size: int, /) -> None:
        self._file.seek(size, os.SEEK_CUR)


class _Packed:
    """Ends where the data is damaged: what is missing then shows in the sums."""

    def __init__(self, file: BinaryIO, size_b: int) -> None:
        self.size_b = max(_MOST_B, _MOST_RATIO * size_b)
        self._file = file
        self._unpacker = zlib.decompressobj(_GZIP)
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        """As of a file."""
        try:
            while not self._unpacker.eof:
                data = self._rest or self._file.read(_UNPACKED_B)
                if not data:
                    return b""
                found = self._unpacker.decompress(data, size)
                self._rest = self._unpacker.unconsumed_tail
                if found:
                    return found
        except zlib.error:
            self._rest = b""
            self._file.seek(0, os.SEEK_END)
        return b""

    def skip(self, size: int, /) -> None:
        while size > 0 and (data := self.read(min(size, _UNPACKED_B))):
            size -= len(data)


@contextmanager
def open_source(path: Path, size_b: int, moved: Path | None = None) -> Iterator[Source]:
    """What is in ``path``, or in the file it was made or moved to since it was listed.

    Args:
        path: A segment, in whatever form.
        size_b: Its size; what a live process adds meanwhile is left for the next reading.
        moved: Where it goes from a spool, or None.

    Raises:
        OSError: It cannot be opened.
    """
    with _open(path) if moved is None else _open_either(path, moved) as file:
        if str(file.name).endswith(schema.COMPACTED_SUFFIX):
            from rlvr_probe.recording.compacted.lines import Lines

            yield Lines(Path(file.name))
        elif str(file.name).endswith(schema.PACKED_SUFFIX):
            yield _Packed(file, size_b)
        else:
            yield _Plain(file, size_b)


def _open(path: Path) -> BinaryIO:
    plain = str(path)
    for suffix in schema.PACKED_SUFFIXES:
        plain = plain.removesuffix(suffix)
    for form in (path, *(Path(f"{plain}{suffix}") for suffix in schema.PACKED_SUFFIXES)):
        with suppress(FileNotFoundError):
            return form.open("rb")
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def _open_either(path: Path, moved: Path) -> BinaryIO:
    try:
        return _open(path)
    except FileNotFoundError:
        return _open(moved)
