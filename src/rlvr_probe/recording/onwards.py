"""The files of one process's journal, read onwards as they grow, a slice at a time.

What does not fit its sum, or was there before, is passed over: who reads the whole recording counts
it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from rlvr_probe.model import schema
from rlvr_probe.recording.files import Segment
from rlvr_probe.recording.header import Header, parse_header
from rlvr_probe.recording.packed import Source
from rlvr_probe.recording.segment import CHUNK_LIMIT_B, whole_chunks

__all__ = ["Chunk", "Onwards"]

_SUM: Final = re.compile(rb'\["sum",([0-9]{1,18}),[0-9]{1,10}\]\n')


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows whose sum fits.

    Attributes:
        body: Their lines.
        segment: Number of the file.
        begin, end: Where they and their sum lie in it, bytes, before it is compressed.
    """

    body: bytes
    segment: int
    begin: int
    end: int


class Onwards:
    """Reads the journal of one process; one thread.

    Attributes:
        header: Once it was read; before, there are no chunks.
    """

    def __init__(self, process: str, slice_b: int) -> None:
        """Read nothing yet, and later ``slice_b`` bytes at a time."""
        self.header: Header | None = None
        self._process = process
        self._slice_b = slice_b
        self._open = ExitStack()
        self._source: Source | None = None
        self._segment = -1
        self._offset = 0
        self._lines = self._lines_before = 0
        self._rest = b""
        self._given_up = False

    @property
    def lines(self) -> int:
        """Lines that were read, as the process counts them: sums left out."""
        return self._lines_before + self._lines

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
        while not self._given_up:
            if self._source is None and not self._next(parts):
                break
            data = b"" if self._source is None else self._source.read(self._slice_b)
            if data:
                return len(data), list(self._take(data))
            # What was listed after it was begun when this file was complete.
            if not any(number > self._segment for number in parts):
                break
            self.close()
        return 0, []

    def _next(self, parts: Mapping[int, Segment]) -> bool:
        following = [number for number in parts if number > self._segment]
        if not following:
            return False
        number = min(following)
        self._source = self._open.enter_context(parts[number].open())
        self._segment = number
        self._lines_before += self._lines
        self._offset = self._lines = 0
        self._rest = b""
        return True

    def _take(self, data: bytes) -> Iterator[Chunk]:
        data, end = self._rest + data, 0
        for begin, total, end in whole_chunks(data):
            body = data[begin:total]
            if self._is_sound(body, data[total:end]):
                yield Chunk(body, self._segment, self._offset + begin, self._offset + end)
        self._offset += end
        self._rest = data[end:]
        if len(self._rest) > CHUNK_LIMIT_B:
            self._given_up, self._rest = True, b""

    def _is_sound(self, body: bytes, last: bytes) -> bool:
        """Whether a chunk has rows that may be used; takes note of the header."""
        found, count = _SUM.fullmatch(last), body.count(b"\n")
        total = 0 if found is None else int(found[1])
        if found is None or schema.sum_row(total, zlib.crc32(body)) != last:
            return False
        if total - count < self._lines:  # there twice
            return False
        self._lines = total
        if total == count == 1:
            header = parse_header(body[:-1], f"the journal of {self._process}")
            mine = header is not None and header.process == self._process
            if self.header is None and mine:
                self.header = header
            return False
        return self.header is not None
