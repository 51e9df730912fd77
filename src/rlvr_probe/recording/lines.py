"""Lines of a file that may be torn, endless or still growing, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

__all__ = ["LINE_LIMIT_B", "Lines"]

LINE_LIMIT_B: Final = 64 * 1024 * 1024
"""No line of ours is longer: a row of 1,000 trajectories takes about 10 KB."""

_BLOCK_B: Final = 1024 * 1024


class Readable(Protocol):
    """A file opened for reading bytes, or what acts like one."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, ``size`` at most; none at the end."""
        ...


class Lines:
    """Iterates over the complete lines of the first ``size_b`` bytes of a file, once.

    At a line that is too long it gives up: nothing of ours lies behind it.

    Attributes:
        torn: The last line had no end.
        too_long: It gave up.
    """

    def __init__(self, file: Readable, size_b: int, limit_b: int = LINE_LIMIT_B) -> None:
        """Read ``file`` from where it stands.

        Args:
            file: What to read.
            size_b: How much of it exists now, bytes: what a live process adds meanwhile is left
                for the next reading.
            limit_b: Length of a line at which to give up, bytes.
        """
        self.torn = False
        self.too_long = False
        self._file = file
        self._left = size_b
        self._limit = limit_b

    def __iter__(self) -> Iterator[bytes]:
        begun, length = list[bytes](), 0
        while self._left > 0:
            block = self._file.read(min(_BLOCK_B, self._left))
            if not block:
                break
            self._left -= len(block)
            first, *others = block.split(b"\n")
            begun.append(first)
            length += len(first)
            if length > self._limit:
                self.too_long = True
                return
            if others:
                yield b"".join(begun)
                *whole, rest = others
                yield from whole
                begun, length = [rest], len(rest)
        self.torn = length > 0
