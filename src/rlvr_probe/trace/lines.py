"""Lines of a file that may be torn, endless or still growing, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

__all__ = ["LINE_LIMIT_B", "Lines"]

LINE_LIMIT_B: Final = 64 * 1024 * 1024
"""A longer line is given up: a row of 1,000 trajectories takes about 10 KB."""

_BLOCK_B: Final = 1024 * 1024


class Lines:
    """Iterates over the complete lines of the first ``size_b`` bytes of a file, once.

    A line that is too long is given up: None stands for it.

    Attributes:
        torn: The last line had no end.
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
        self._file = file
        self._left = size_b
        self._limit = limit_b

    def __iter__(self) -> Iterator[bytes | None]:
        begun, length = list[bytes](), 0
        while self._left > 0:
            block = self._file.read(min(_BLOCK_B, self._left))
            if not block:
                break
            self._left -= len(block)
            first, *others = block.split(b"\n")
            length += len(first)
            if length <= self._limit:
                begun.append(first)
            else:
                begun.clear()
            if not others:
                continue
            yield b"".join(begun) if length <= self._limit else None
            *whole, rest = others
            yield from whole
            begun, length = [rest], len(rest)
        if length > self._limit:
            yield None
        else:
            self.torn = length > 0
