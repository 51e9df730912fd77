"""Becoming the sidecar of a run: out of the reach of who started it, and out of the way.

The lock is taken before most of it is imported, so that a node is without one for a moment only.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from rlvr_probe.config import Config
from rlvr_probe.probe import otel_environ
from rlvr_probe.probe.election import (
    FIRST,
    RECORD,
    gives_way,
    holder,
    lock_path,
    open_lock,
    read_record,
)
from rlvr_probe.spool import choose

__all__ = ["Lock", "main", "serve", "stand_back"]

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
            wait: Wait until it is free, before those that only look now and then.

        Raises:
            OSError: No place can hold it.
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
        """Let go, and delete the files of locks that were unused for a day."""
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


LAST_S: Final = 3.0
"""What the compressing of what is left may take before it leaves, s."""

MOVE_S: Final = 600.0
"""What the moving of a spool may take then, s: a file server may be away for a while."""

SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""What makes a sidecar leave in an orderly way; blocked and waited for, so without handlers."""

_NICE: Final = 10
_PATIENCE_S: Final = 30
"""How long a sidecar that is to leave may take."""
_STUCK_S: Final = 60
"""What does not come back for so long ends the sidecar, which would keep others from being it."""


def main() -> None:
    """What a recording process starts; never returns.

    Its arguments are the folder of the package, the run folder, and which process started it.
    """
    folder, role = Path(sys.argv[2]), sys.argv[3]
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2:
            with suppress(OSError):
                os.close(fd)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.umask(0o077)
    stand_back()
    config = Config.from_environ()
    if config.disabled or not config.sidecar:
        return
    lock = Lock.take(folder)
    if role == FIRST and not isinstance(lock, Lock) and lock and gives_way(lock, os.environ):
        lock = _relieve(folder, lock)
    if isinstance(lock, Lock):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        beat = partial(signal.alarm, _STUCK_S)
        beat()
        os.environ.update(otel_environ.received(os.environ))
        serve(folder, config, lock, spool=_spool(folder, config), beat=beat)


def _relieve(folder: Path, pid: int) -> Lock | int:
    """Have another sidecar leave; the lock, once it has, or the pid of who holds it.

    Ended by an alarm, if it does not leave: it is of more use than none.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_PATIENCE_S)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    lock = Lock.take(folder, wait=True)
    signal.alarm(0)
    return lock


def serve(
    folder: Path,
    config: Config,
    lock: Lock,
    *,
    last_s: float = LAST_S,
    move_s: float = MOVE_S,
    spool: Path | None = None,
    every_node: bool = False,
    beat: Callable[[], object] | None = None,
) -> str:
    """Be the sidecar of a run until no process writes to it; why it left, in a word.

    Args:
        folder: Run folder.
        config: Settings of the processes of the run.
        lock: Released at the end.
        last_s: How long it may go on compressing when there is nothing else to do, s.
        move_s: How long it may go on moving the spool then, s.
        spool: Where the processes of this node write, if that is not the run folder.
        every_node: Compress what is finished of other nodes, too.
        beat: Called about once a second as long as nothing hangs.
    """
    with _blocked():
        from rlvr_probe.sidecar.loop import Sidecar

        reason = Sidecar(
            folder,
            config,
            lock,
            SIGNALS,
            last_s=last_s,
            move_s=move_s,
            spool=spool,
            every_node=every_node,
            beat=beat,
        ).run()
    lock.release()
    return reason


def _spool(folder: Path, config: Config) -> Path | None:
    """Where the processes of this node write, if that is not the run folder."""
    try:
        place = choose(folder, config)
    except OSError:  # as they found out, too
        return None
    return None if place == folder else place


def stand_back() -> None:
    """Take no time and no core from a run, and be the first to go where memory is short."""
    os.nice(_NICE)
    with suppress(OSError):  # not these, in this container
        # A rank may be pinned to one core, which is for it alone.
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    for name, text in (("oom_score_adj", "1000"), ("comm", "rlvr-sidecar")):
        with suppress(OSError):
            Path("/proc/self", name).write_text(text, encoding="ascii")


@contextmanager
def _blocked() -> Iterator[None]:
    """Block the signals that the loop waits for."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
