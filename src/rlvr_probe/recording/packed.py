"""Opens a segment, compressed or not, for reading in bounded memory and time."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from rlvr_probe.model import schema

__all__ = ["Source", "open_source"]

_MOST_B: Final = 4 << 30
_MOST_RATIO: Final = 100
"""What a compressed file may hold: more than that, and more than so many times its size, is no
journal of ours but made to keep readers busy."""

_GZIP: Final = 31
_BLOCK_B: Final = 64 * 1024


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
        """Leave out the next ``size`` bytes."""
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
                data = self._rest or self._file.read(_BLOCK_B)
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
        while size > 0 and (data := self.read(min(size, _BLOCK_B))):
            size -= len(data)


@contextmanager
def open_source(path: Path, size_b: int, moved: Path | None = None) -> Iterator[Source]:
    """What is in ``path``, or in the file it was compressed or moved to since it was listed.

    Args:
        path: A segment, compressed or not.
        size_b: Its size; what a live process adds meanwhile is left for the next reading.
        moved: Where it goes from a spool, or None.

    Raises:
        OSError: It cannot be opened.
    """
    with _open(path) if moved is None else _open_either(path, moved) as file:
        is_packed = str(file.name).endswith(schema.PACKED_SUFFIX)
        yield _Packed(file, size_b) if is_packed else _Plain(file, size_b)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError:
        if path.name.endswith(schema.PACKED_SUFFIX):
            raise
        return Path(f"{path}{schema.PACKED_SUFFIX}").open("rb")


def _open_either(path: Path, moved: Path) -> BinaryIO:
    try:
        return _open(path)
    except FileNotFoundError:
        return _open(moved)
