"""Segments of journals that are finished are put into another form; of a spool copied as they grow.

Compressing goes a slice at a time, so that the devices are read in between; compacting is done by
another process. The new file is complete under another name before it gets its own, and the
original goes some seconds later, so that a reader that lists the folder meanwhile finds one of the
two. A kill in between leaves an unread name, or both files with the same lines.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import time
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Final

from rlvr_probe.access import PRIVATE, Access
from rlvr_probe.model import schema
from rlvr_probe.recording.chunks import Chunks, read_chunks

__all__ = [
    "LEAST_B", "SLICE_B", "Copy", "compact", "compress", "delete_unfinished", "is_finished",
    "is_open_for_writing", "last_end", "place", "sync_folder", "unfinished",
]  # fmt: skip

LEAST_B: Final = 64 * 1024
"""Smaller files stay as they are."""

_PACK_B: Final = 512 * 1024
_LEVEL: Final = 1
_GZIP: Final = 31
"""What zlib calls a window of 32 KiB with the frame of gzip."""

_UNFINISHED: Final = ".unfinished"
_ABANDONED_S: Final = 600


def compress(path: Path) -> Generator[None, None, None]:
    """Put ``NAME.gz`` beside a segment; gives way after each slice of some milliseconds.

    There is none if the segment changes meanwhile.

    Raises:
        OSError: It cannot be read, or the disk is full; everything is as before.
    """
    target = Path(f"{path}{schema.PACKED_SUFFIX}")
    made = unfinished(target)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with (
            open(os.open(path, flags), "rb") as source,
            open(made, "wb", opener=_private) as packed,
        ):
            before = os.fstat(source.fileno())
            packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
            while data := source.read(_PACK_B):
                packed.write(packer.compress(data))
                yield
            packed.write(packer.flush())
            packed.flush()
            os.fchmod(packed.fileno(), before.st_mode & 0o777)
            # The newest run is the one that was written to last.
            os.utime(packed.fileno(), ns=(before.st_atime_ns, before.st_mtime_ns))
            os.fsync(packed.fileno())
            yield
            if source.tell() != before.st_size:
                raise OSError(errno.EBUSY, "the segment changed while it was compressed")
            _check_same(before, os.fstat(source.fileno()))
            os.replace(made, target)
    finally:
        made.unlink(missing_ok=True)


def compact(path: Path, made: Path) -> bool:
    """Put ``NAME.parquet`` beside a segment, compressed or not; whether that is of any use.

    It is of none where no row of the segment goes to columns.

    Args:
        path: The segment.
        made: Where the file grows, :func:`unfinished`; gone afterwards.

    Raises:
        OSError: It cannot be read, changes, does not come out again as it was, or the disk is full;
            everything is as before.
    """
    from rlvr_probe.recording.compacted.write import write_compacted

    plain = str(path).removesuffix(schema.PACKED_SUFFIX)
    try:
        before = path.stat(follow_symlinks=False)
        os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600))
        about = write_compacted(path, made)
        os.chmod(made, before.st_mode & 0o777)
        os.utime(made, ns=(before.st_atime_ns, before.st_mtime_ns))
        _check_same(before, path.stat(follow_symlinks=False))
        if about.rows:
            os.replace(made, f"{plain}{schema.COMPACTED_SUFFIX}")
            sync_folder(path.parent)
        return bool(about.rows)
    finally:
        made.unlink(missing_ok=True)


def unfinished(target: Path) -> Path:
    """Where a file grows: another container may have a sidecar that works on the same one."""
    return Path(f"{target}.{os.urandom(4).hex()}{_UNFINISHED}")


def is_finished(path: Path) -> bool:
    """Whether a segment has another form beside it."""
    return any(os.path.exists(f"{path}{suffix}") for suffix in schema.PACKED_SUFFIXES)


def _check_same(before: os.stat_result, after: os.stat_result) -> None:
    same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    if not same or not after.st_nlink:
        raise OSError(errno.EBUSY, "the segment changed meanwhile")


def is_open_for_writing(path: Path) -> bool:
    """Whether any process of this kernel, in whatever container, has a file open for writing.

    True also where the kernel or the file system does not know.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        # A lease is granted only where there is no writer, and given back at once. If a process
        # opens the file to write in between, the kernel sends a signal: the default one would end
        # us, this one is ignored.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def delete_unfinished(folder: Path) -> None:
    """Delete what sidecars left that were killed.

    Raises:
        OSError: The folder cannot be read.
    """
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.endswith(_UNFINISHED)]
    for path in (folder / name for name in names if name.startswith("p")):
        if time.time() - path.lstat().st_mtime > _ABANDONED_S:
            path.unlink()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL | os.O_NOFOLLOW, 0o600)


SLICE_B: Final = 4 << 20
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


def place(data: bytes | Path, target: Path, access: Access = PRIVATE) -> None:
    """Put content, or a copy of a file, under a name in one go.

    Raises:
        OSError: It is as it was.
    """
    own = target.with_name(f"{target.name}.{os.urandom(4).hex()}.unfinished")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
    try:
        with open(access.open(own, flags), "wb", buffering=0) as file:
            if isinstance(data, Path):
                with data.open("rb", buffering=0) as source:
                    while block := source.read(SLICE_B):
                        _write_all(file.fileno(), block)
                    found = os.fstat(source.fileno())
                # The newest run is the one that was written to last.
                os.utime(file.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))
            else:
                _write_all(file.fileno(), data)
            os.fsync(file.fileno())
        own.replace(target)
    except OSError:
        own.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """See to it that new names in a folder outlive a crash, where that can be asked for."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError:  # EINVAL where names are always written at once
        pass
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


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
