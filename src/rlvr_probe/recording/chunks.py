"""Chunks of a journal whose sum fits; the rest is counted, and never used.

A sum covers every byte of its chunk and says how many lines there were up to it: what is damaged,
missing or there twice is told apart and counted, to the line wherever a sum that fits comes later.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Final

from rlvr_probe.model import schema
from rlvr_probe.recording.lines import LINE_LIMIT_B, Lines

__all__ = ["CHUNK_LIMIT_B", "Chunks", "whole_chunks"]

CHUNK_LIMIT_B: Final = LINE_LIMIT_B + schema.CHUNK_B
"""What takes more memory without a sum is no journal of ours."""

_LINE_B: Final = 64
"""What a line takes besides its bytes: a gigabyte of line feeds is a lot of lines."""

_SUM = re.compile(rb'\["sum",([0-9]{1,18}),[0-9]{1,10}\]')


class Chunks:
    """Iterates over the chunks of a file that are whole, as lists of lines, once.

    The first one of a sound file is the header alone.

    Attributes:
        lines: Lines that were written up to the last sum that fits, sums left out.
        seen: The same up to the end of the file, as far as can be told.
        damaged: Lines of chunks whose sum does not fit, or that are missing.
        repeated: Lines of chunks that were there before.
        torn: Lines behind the last sum, the last of them perhaps without its end.
        given_up: There is no sum for so long that the rest of the file was not read.
    """

    def __init__(self, lines: Lines) -> None:
        """Take the lines of a file from its beginning."""
        self.lines = 0
        self.seen = 0
        self.damaged = 0
        self.repeated = 0
        self.torn = 0
        self.given_up = False
        self._source = lines

    def __iter__(self) -> Iterator[list[bytes]]:
        held, size, doubtful = list[bytes](), 0, 0
        for line in self._source:
            if not line.startswith(b'["sum",'):
                held.append(line)
                size += len(line) + _LINE_B
                if size > CHUNK_LIMIT_B:
                    self.given_up = True
                    held = []
                    break
                continue
            total = _total(held, line)
            if total is None:
                doubtful += len(held)
            elif total - len(held) < self.lines:
                self.repeated += len(held)
            else:
                self.damaged += total - len(held) - self.lines
                self.lines, doubtful = total, 0
                yield held
            held, size = [], 0
        self.given_up = self.given_up or self._source.too_long
        self.damaged += doubtful
        self.torn = len(held) + self._source.torn
        self.seen = self.lines + doubtful + self.torn


def whole_chunks(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Begin, begin of its sum, and end of every chunk that ``data`` holds whole, sound or not."""
    begin = 0
    while (at := data.find(b'\n["sum",', begin)) >= 0:
        end = data.find(b"\n", at + 1) + 1
        if not end:
            return
        yield begin, at + 1, end
        begin = end


def _total(held: list[bytes], line: bytes) -> int | None:
    """Lines of the file up to the sum in ``line``, if it fits the lines before it."""
    found = _SUM.fullmatch(line)
    if found is None:
        return None
    total = int(found[1])
    crc = 0
    for one in held:
        crc = zlib.crc32(b"\n", zlib.crc32(one, crc))
    fits = total >= len(held) > 0 and schema.sum_row(total, crc) == line + b"\n"
    return total if fits else None
