"""Compresses finished segments, a slice at a time, so that the devices are read in between.

The compressed file is complete under another name before it gets its own, and the original goes
some seconds later, so that a reader that lists the folder meanwhile finds one of the two. Whoever
is killed in between leaves a name nobody reads, or both files with the same lines.
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

from rlvr_probe.model import schema

__all__ = ["LEAST_B", "compress", "delete_unfinished", "is_open_for_writing"]

LEAST_B: Final = 64 * 1024
"""Smaller files stay as they are."""

_SLICE_B: Final = 512 * 1024
_LEVEL: Final = 1
_GZIP: Final = 31
"""What zlib calls a window of 32 KiB with the frame of gzip."""

_UNFINISHED: Final = ".unfinished"
_ABANDONED_S: Final = 600


def compress(path: Path) -> Generator[None, None, None]:
    """Put ``NAME.gz`` beside a segment; gives way after each slice of some milliseconds.

    There is none if the segment changes meanwhile.

    Raises:
        OSError: It cannot be read, or there is no room; everything is as before.
    """
    target = Path(f"{path}{schema.PACKED_SUFFIX}")
    # Another container may have a sidecar that works on the same one.
    unfinished = Path(f"{target}.{os.urandom(4).hex()}{_UNFINISHED}")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with (
            open(os.open(path, flags), "rb") as source,
            open(unfinished, "wb", opener=_private) as packed,
        ):
            before = os.fstat(source.fileno())
            packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
            while data := source.read(_SLICE_B):
                packed.write(packer.compress(data))
                yield
            packed.write(packer.flush())
            packed.flush()
            os.fchmod(packed.fileno(), before.st_mode & 0o777)
            # The newest run is the one that was written to last.
            os.utime(packed.fileno(), ns=(before.st_atime_ns, before.st_mtime_ns))
            os.fsync(packed.fileno())
            yield
            after = os.fstat(source.fileno())
            same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
            if not same or not after.st_nlink or source.tell() != after.st_size:
                raise OSError(errno.EBUSY, "the segment changed while it was compressed")
            os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


def is_open_for_writing(path: Path) -> bool:
    """Whether any process of this kernel, in whatever container, has a file open for writing.

    True also where the kernel or the file system cannot tell.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        # It is granted only where there is no writer, and given back at once. Of whoever begins to
        # write in between the kernel tells by a signal, which by default would end us.
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
