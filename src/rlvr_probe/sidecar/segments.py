"""Segments of journals that are finished are put into another form.

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
import time
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Final

from rlvr_probe.access import PRIVATE, Access
from rlvr_probe.model import schema

__all__ = [
    "LEAST_B", "SLICE_B", "compact", "compress", "delete_unfinished", "is_finished",
    "is_open_for_writing", "place", "sync_folder", "unfinished",
]  # fmt: skip

LEAST_B: Final = 64 * 1024
"""Smaller files stay as they are."""

_PACK_B: Final = 512 * 1024
_LEVEL: Final = 1
_GZIP: Final = 31
"""What zlib calls a window of 32 KiB with the frame of gzip."""

_UNFINISHED: Final = ".unfinished"
_ABANDONED_S: Final = 600
SLICE_B: Final = 4 << 20
_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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
