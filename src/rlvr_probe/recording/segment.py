"""The bytes of a segment as chunks that are whole; the rest is counted, and never used.

A sum covers every byte of its chunk and says how many lines there were up to it: what is damaged,
missing or there twice is told apart and counted, to the line wherever a sum that fits comes later.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from rlvr_probe.model import schema

__all__ = ["CHUNK_LIMIT_B", "Chunk", "Chunks", "read_chunks"]

CHUNK_LIMIT_B: Final = 64 * 1024 * 1024 + schema.CHUNK_B
"""What takes more memory without a sum is no journal of ours: a row of 1,000 trajectories takes
about 10 KB."""

_LINE_B: Final = 64
"""What a line takes besides its bytes once it is decoded: a gigabyte of line feeds is a lot."""

_BLOCK_B: Final = 8 * 1024 * 1024
_BEGIN: Final = b'["sum",'
_SUM: Final = re.compile(rb'\["sum",([0-9]{1,18}),[0-9]{1,10}\]\n')


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
        lines: How many there were up to its end, sums left out.
        begin, end: Where it and its sum lie in the file, bytes, before that is compressed.
    """

    body: bytes
    lines: int
    begin: int
    end: int


class Chunks:
    """Cuts the bytes of one file into chunks as they are read.

    Attributes:
        lines: Lines that were written up to the last sum that fits, sums left out.
        repeated: Lines of chunks that were there before.
        given_up: There is no sum for so long that the rest of the file is not to be read.
    """

    def __init__(self) -> None:
        """Stand at the beginning of a file."""
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
        """Lines that were written up to the end of the file, as far as can be told."""
        return self.lines + self._doubtful + self.torn


def read_chunks(file: Readable, size_b: int, chunks: Chunks) -> Iterator[Chunk]:
    """Every chunk of a file that is whole.

    Args:
        file: Stands at its beginning.
        size_b: How much of it exists now, bytes: what a live process adds meanwhile is left for the
            next reading.
        chunks: Counts what is not.
    """
    while size_b > 0 and not chunks.given_up and (data := file.read(min(_BLOCK_B, size_b))):
        size_b -= len(data)
        yield from chunks.feed(data)


def _whole(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Begin, begin of its sum, and end of every chunk that ``data`` holds whole, sound or not."""
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
