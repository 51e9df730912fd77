"""The files of one process's journal, read on as they grow, a slice at a time.

What does not fit its sum, or was there before, is passed over: who reads the whole recording counts
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack

from rlvr_probe.recording.files import Segment
from rlvr_probe.recording.header import Header, parse_header
from rlvr_probe.recording.segment import Chunk, Chunks, Source

__all__ = ["GrowingJournal"]


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
        """Lines that were read, as the process counts them: sums left out."""
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
            # What was listed after it was begun when this file was complete.
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
