"""Lines of a file that may be torn, endless or still growing, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

__all__ = ["LINE_LIMIT_B", "Lines"]

LINE_LIMIT_B: Final = 16 * 1024 * 1024
"""A longer line is given up: a row of 1,000 trajectories takes about 10 KB."""

_CHUNK_B: Final = 1024 * 1024


class Lines:
    """Iterates over the complete lines of the first ``size_b`` bytes of a file, once.

    Attributes:
        torn: The last line had no end.
        too_long: Lines given up because of their length.
    """

    def __init__(self, file: BinaryIO, size_b: int, limit_b: int = LINE_LIMIT_B) -> None:
        """Read ``file`` from where it stands.

        Args:
            file: Opened for reading bytes.
            size_b: How much of it exists now, bytes: what a live process adds meanwhile is left
                for the next reading.
            limit_b: Length beyond which a line is given up, bytes.
        """
        self.torn = False
        self.too_long = 0
        self._file = file
        self._left = size_b
        self._limit = limit_b

    def __iter__(self) -> Iterator[bytes]:
        rest, skipping = b"", False
        while self._left > 0:
            chunk = self._file.read(min(_CHUNK_B, self._left))
            if not chunk:
                break
            self._left -= len(chunk)
            parts = chunk.split(b"\n")
            if skipping:
                if len(parts) == 1:
                    continue
                skipping = False
                self.too_long += 1
                del parts[0]
            else:
                parts[0] = rest + parts[0]
            rest = parts.pop()
            yield from parts
            if len(rest) > self._limit:
                rest, skipping = b"", True
        if skipping:
            self.too_long += 1
        elif rest:
            self.torn = True
