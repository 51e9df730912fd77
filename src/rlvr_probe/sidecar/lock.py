"""The lock that makes a process the sidecar of a run on its node."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from rlvr_probe.probe.election import RECORD, holder, lock_path, open_lock, read_record

__all__ = ["Lock"]

_OLD_S: Final = 24 * 3600


class Lock:
    """Held by this process alone, until it ends or lets go: a forked child does not inherit it.

    The file must not be opened once more in this process: to close that would be to let go.

    Attributes:
        in_vain: Sidecars asked for since one did what it is there for, this one among them.
    """

    def __init__(self, path: Path, fd: int) -> None:
        """Use :meth:`take`."""
        self.in_vain = read_record(fd)[2]
        self._path = path
        self._fd = fd

    @classmethod
    def take(cls, folder: Path, *, wait: bool = False) -> Lock | int:
        """The lock of the run in ``folder``, or the pid of who holds it (0 if that is unknown).

        Args:
            folder: Run folder.
            wait: Wait until nobody holds it, before anybody who only looks now and then.

        Raises:
            OSError: There is no place for it.
        """
        path = lock_path(folder)
        fd = open_lock(path)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = holder(fd)
            os.close(fd)
            return found or 0
        lock = cls(path, fd)
        if not lock.is_held():  # deleted between the two calls
            os.close(fd)
            return 0
        asked_ns, _, in_vain = read_record(fd)
        os.pwrite(fd, RECORD.pack(asked_ns, max(asked_ns, time.monotonic_ns()), in_vain), 0)
        return lock

    def is_held(self) -> bool:
        """Whether others see it held: somebody may have deleted its file."""
        mine = os.fstat(self._fd)
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return False
        return (mine.st_dev, mine.st_ino) == (found.st_dev, found.st_ino)

    def settle(self) -> None:
        """Note that this sidecar does what it is there for: the next one need not wait."""
        asked_ns, taken_ns, _ = read_record(self._fd)
        os.pwrite(self._fd, RECORD.pack(asked_ns, taken_ns, 0), 0)

    def release(self) -> None:
        """Let go, and delete the files of locks that nobody has used for a day."""
        os.close(self._fd)
        now = time.time()
        with suppress(OSError), os.scandir(self._path.parent) as entries:  # others clean up, too
            old = [
                entry.path
                for entry in entries
                if now - entry.stat(follow_symlinks=False).st_mtime > _OLD_S
            ]
            for path in old:
                _delete_unless_held(path)


def _delete_unless_held(path: str) -> None:
    try:
        fd = open_lock(Path(path))
    except OSError:
        return
    try:
        if holder(fd) is None:
            os.unlink(path)
    finally:
        os.close(fd)
