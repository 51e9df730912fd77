"""The bytes of a segment as chunks that are whole; the rest is counted, and never used.

A sum covers every byte of its chunk and says how many lines there were up to it: what is damaged,
missing or there twice is told apart and counted, to the line wherever a sum that fits comes later.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Final, Protocol

from rlvr_probe.model import schema

__all__ = ["CHUNK_LIMIT_B", "Chunks", "lines_up_to", "whole_chunks"]

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


class Chunks:
    """Iterates over the chunks of a file that are whole, as bytes, once.

    The first one of a sound file is the header alone.

    Attributes:
        lines: Lines that were written up to the last sum that fits, sums left out.
        seen: The same up to the end of the file, as far as can be told.
        damaged: Lines of chunks whose sum does not fit, or that are missing.
        repeated: Lines of chunks that were there before.
        torn: Lines behind the last sum, the last of them perhaps without its end.
        given_up: There is no sum for so long that the rest of the file was not read.
    """

    def __init__(self, file: Readable, size_b: int) -> None:
        """Read ``file`` from where it stands.

        Args:
            file: What to read.
            size_b: How much of it exists now, bytes: what a live process adds meanwhile is left
                for the next reading.
        """
        self.lines = 0
        self.seen = 0
        self.damaged = 0
        self.repeated = 0
        self.torn = 0
        self.given_up = False
        self._file = file
        self._left_b = size_b

    def __iter__(self) -> Iterator[bytes]:
        rest, doubtful = b"", 0
        while self._left_b > 0:
            block = self._file.read(min(_BLOCK_B, self._left_b))
            if not block:
                break
            self._left_b -= len(block)
            data, end = rest + block, 0
            for begin, middle, end in whole_chunks(data):
                body = data[begin:middle]
                count = body.count(b"\n")
                total = lines_up_to(body, count, data[middle:end])
                if total is None:
                    doubtful += count
                elif total - count < self.lines:
                    self.repeated += count
                else:
                    self.damaged += total - count - self.lines
                    self.lines, doubtful = total, 0
                    yield body
            rest = data[end:]
            if len(rest) + _LINE_B * rest.count(b"\n") > CHUNK_LIMIT_B:
                self.given_up, rest = True, b""
                break
        self.damaged += doubtful
        self.torn = rest.count(b"\n") + (bool(rest) and not rest.endswith(b"\n"))
        self.seen = self.lines + doubtful + self.torn


def whole_chunks(data: bytes) -> Iterator[tuple[int, int, int]]:
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


def lines_up_to(body: bytes, count: int, last: bytes) -> int | None:
    """Lines of the file up to the sum ``last``, if it fits ``body``, ``count`` lines before it."""
    found = _SUM.fullmatch(last)
    total = 0 if found is None else int(found[1])
    if found is None or not total >= count > 0:
        return None
    return total if schema.sum_row(total, zlib.crc32(body)) == last else None
