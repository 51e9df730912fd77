"""Copies a segment as it grows: from a spool to the run folder, or a first part of it elsewhere."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from rlvr_probe.access import PRIVATE, Access
from rlvr_probe.recording.chunks import Chunks, read_chunks
from rlvr_probe.sidecar.segments import SLICE_B

__all__ = ["Copy", "last_end"]

_SUM: Final = b'\n["sum",'
_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_Identity = tuple[int, int, int, int]
"""Device, number, size and time of the last change of a file."""


class Copy:
    """A segment of a spool that may still be written to, copied as it grows. Used by one thread.

    What is there is never made worse: it is compared first, and only what is missing is written,
    each byte at its place. So a copy that was killed anywhere is gone on with, and two do no harm.

    Its file stays open between calls only as long as it grows: a node may have had more processes
    than a process may have open files.

    Attributes:
        done_b: How much of it is in the run folder for good, bytes from its start.
    """

    def __init__(self, source: Path, target: Path, access: Access = PRIVATE) -> None:
        """Touch nothing yet."""
        self.done_b = 0
        self._source = source
        self._target = target
        self._access = access
        self._fd = -1
        self._kept = False
        self._rested: _Identity | None = None

    def run(self, *, whole: bool) -> None:
        """Copy what is new.

        Args:
            whole: No process writes to it any more: copy what is behind its last whole chunk, too.

        Raises:
            OSError: It cannot be read, or not written; what is in the run folder is its first part.
        """
        if self.is_whole():
            self._rest()
            return
        grows = not whole and (self._fd >= 0 or self._rested is not None)
        source = os.open(self._source, os.O_RDONLY | _FLAGS)
        try:
            self._ready(source)
            before = self.done_b
            while not self._kept and (data := _read(source, self.done_b, whole=whole)):
                self._write(data)
            if self.done_b > before:
                self._sync()
        finally:
            os.close(source)
            if not grows:
                self._rest()

    def is_whole(self) -> bool:
        """Whether everything in it is in the run folder.

        Raises:
            OSError: It cannot be looked at.
        """
        if self._kept:
            return True
        begun = self._fd >= 0 or self._rested is not None
        if not begun or self._source.stat().st_size != self.done_b:
            return False
        try:
            return self._target.stat().st_size >= self.done_b
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the file in the run folder; who goes on compares it again."""
        fd, self._fd = self._fd, -1
        self.done_b, self._rested = 0, None
        if fd >= 0:
            os.close(fd)

    def _rest(self) -> None:
        """Close the file in the run folder, to go on there unless it changes meanwhile."""
        if self._fd >= 0:
            self._rested = _identity(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _wake(self) -> bool:
        """Whether the file is open again and as it was."""
        if self._rested is None:
            return False
        try:
            self._fd = os.open(self._target, os.O_RDWR | _FLAGS)
        except FileNotFoundError:
            return False
        return _identity(self._fd) == self._rested

    def _ready(self, source: int) -> None:
        if self._fd < 0:
            if self._wake():
                return
        elif os.fstat(self._fd).st_nlink and self._target.exists():
            return
        self.close()
        self._fd = self._access.open(self._target, os.O_RDWR | os.O_CREAT | _FLAGS)
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise FileExistsError(f"{self._target.name} is not a regular file")
        size_b, there_b = os.fstat(source).st_size, os.fstat(self._fd).st_size
        same_b = _common(source, self._fd)
        if same_b < there_b and (same_b == size_b or _sound(self._target) >= _sound(self._source)):
            # A power cut may leave less in the spool than was copied.
            self.done_b, self._kept = there_b, True
        else:
            if same_b < there_b:
                os.ftruncate(self._fd, same_b)
            # A sum of which a part is there would not be found in the rest.
            self.done_b = last_end(source, same_b)

    def _write(self, data: bytes) -> None:
        view, done = memoryview(data), 0
        try:
            while done < len(view):
                done += os.pwrite(self._fd, view[done:], self.done_b + done)
        except OSError:
            try:
                os.ftruncate(self._fd, self.done_b)
            except OSError:
                self.close()
            raise
        self.done_b += done

    def _sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError:  # what was written before may be lost
            self.close()
            raise


def _identity(fd: int) -> _Identity:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _read(fd: int, begin_b: int, *, whole: bool) -> bytes:
    """What follows in a file, up to a few MiB: whole chunks only, unless it is ``whole``."""
    size_b = SLICE_B
    while True:
        data = os.pread(fd, size_b, begin_b)
        if whole:
            return data
        end = _end_in(data)
        if end or len(data) < size_b:
            return data[:end]
        size_b *= 2


def last_end(fd: int, end_b: int) -> int:
    """Where the last chunk ends that is whole before ``end_b``."""
    size_b = SLICE_B
    while True:
        begin_b = max(0, end_b - size_b)
        end = _end_in(os.pread(fd, end_b - begin_b, begin_b))
        if end or not begin_b:
            return begin_b + end
        size_b *= 2


def _end_in(data: bytes) -> int:
    """Where the last chunk ends that is whole in ``data``; 0 if none is."""
    at = len(data)
    while (at := data.rfind(_SUM, 0, at)) >= 0:
        end = data.find(b"\n", at + 1) + 1
        if end:  # or the last sum is not there in full
            return end
    return 0


def _common(fd: int, other: int) -> int:
    """Bytes from the start that two files have in common."""
    at = 0
    while True:
        a, b = os.pread(fd, SLICE_B, at), os.pread(other, SLICE_B, at)
        if a == b and a:
            at += len(a)
            continue
        low, high = 0, min(len(a), len(b))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if a[:middle] == b[:middle] else (low, middle - 1)
        return at + low


def _sound(path: Path) -> int:
    """Lines of whole chunks in a segment."""
    with path.open("rb") as file:
        found = read_chunks(file, path.stat().st_size, Chunks())
        return sum(chunk.body.count(b"\n") for chunk in found)
