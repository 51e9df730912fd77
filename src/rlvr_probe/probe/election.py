"""Which process is the sidecar of a run on this node, and how a recording process starts one.

The process that holds the lock of a run is its sidecar. It takes the lock itself, so that no
process of a run ever holds it, nor a child that it forks; those only ask whether it is held. All
that is shared lies in the lock's file: when a sidecar was last asked for, and how often in vain.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from rlvr_probe import guard
from rlvr_probe.access import is_private
from rlvr_probe.config import ARM, OWNER, Config
from rlvr_probe.filesystem import file_system, is_network, reach
from rlvr_probe.probe import identity, otel_environ
from rlvr_probe.spool import LEAVING_SUFFIX

__all__ = [
    "BURST",
    "FIRST",
    "LATER",
    "PLACES",
    "RECORD",
    "Keeper",
    "gives_way",
    "holder",
    "lock_path",
    "open_lock",
    "read_record",
]

PLACES: tuple[str, ...] = ("/dev/shm", "/tmp")  # noqa: S108 - in a folder of our own there, checked to be ours
"""Where the folder of locks is looked for. Not in the environment, which differs within a job."""

LOOK_NS = 250_000_000
"""How often a process looks whether there is a sidecar."""

JITTER_NS = 100_000_000
"""Processes of one node spread their starts over so long; the first one is seen by the others."""

_PATIENCE_NS: Final = 3_000_000_000
"""How long a sidecar that was asked for may take to hold the lock."""

BURST: Final = 16
"""Sidecars that may end before their time, one after the other, until the next one has to wait."""

_SEVERAL: Final = 4
"""So many of them, and the recording says that there is none."""

FIRST: Final = "first"
"""Last argument of a sidecar that was started by a process whose own start is unrecorded."""
LATER: Final = "later"
"""The same of one that was started by any other process of a job."""

_LONGEST_WAIT_S: Final = 60

_HAND_OVER_NS: Final = 5_000_000_000
_POLL_S: Final = 0.02

_AGAIN_NS: Final = 10_000_000_000
"""How long a process that cannot look, or cannot start anything, waits until it tries again."""

RECORD: Final = struct.Struct("<QQQ")
"""Content of a lock's file: CLOCK_MONOTONIC at which a sidecar was last asked for, and at which one
last took the lock; sidecars asked for since one did what it is there for."""

_FLOCK: Final = struct.Struct("hhqqi0q")
"""C's ``struct flock`` on 64-bit Linux: type, whence, start, length, pid."""

_CODE: Final = (
    "import sys; sys.path[:] = [*filter(None, sys.path), sys.argv[1]]; "
    "from rlvr_probe.sidecar.startup import main; main()"
)
"""The folder of this package comes last: nothing in it may hide a module of Python's."""


class NoSidecar(RuntimeError):
    """Sidecars that were asked for do not come, or do not stay."""


class Recording(Protocol):
    """What is looked after."""

    own_ns: int

    @property
    def refused(self) -> str | None:
        """Why nothing can be written, or None."""


class Keeper:
    """Sees to it that a run has a sidecar on this node. Used by one thread of each process.

    Attributes:
        spool: Where this process writes, if that is not the run folder.
        first: This process started the job.
    """

    def __init__(self, folder: Path, config: Config, *, first: bool = True) -> None:
        """Look at nothing yet.

        Args:
            folder: Run folder.
            config: Its settings are the sidecar's as well.
            first: This process started the job: where a run is to be sent is known best here.
        """
        self._folder = folder
        self._config = config
        self._wanted = config.sidecar and sys.platform == "linux" and bool(sys.executable)
        self.spool: Path | None = None
        self._due_ns = time.monotonic_ns() + 2 * LOOK_NS  # most short processes need none
        self._lock: Path | None = None
        self._seen_free = False
        self._started = 0
        self.first = first
        self._role = FIRST if first else LATER
        self._known: int | None = None

    def follow(self, folder: Path) -> None:
        """Look after another run folder."""
        self._folder, self._lock = folder, None

    @guard.fail_open("election.look")
    def look(self, recording: Recording) -> None:
        """Start a sidecar if it is time to look and there is none; costs some microseconds.

        Args:
            recording: Its own time grows by what this takes. One that cannot write needs none.
        """
        now_ns = time.monotonic_ns()
        if not self._wanted or now_ns < self._due_ns:
            return
        cpu = time.thread_time_ns()
        self._due_ns = now_ns + _AGAIN_NS  # unless this goes well
        try:
            self._reap()
            wait_ns = LOOK_NS if recording.refused else self._look(now_ns)
            self._due_ns = now_ns + wait_ns
        finally:
            recording.own_ns += time.thread_time_ns() - cpu

    def _look(self, now_ns: int) -> int:
        """Look; how long until the next time, ns."""
        if self._lock is None:
            self._lock = lock_path(self._folder)
        try:
            fd = open_lock(self._lock)
        except OSError:
            self._lock = None  # somebody cleaned up: the next look finds a place again
            raise
        try:
            found = holder(fd)
            if found is not None:
                self._seen_free = False
                if found != self._known:
                    self._known = found
                    if self._role == FIRST and gives_way(found, os.environ):
                        self._started = _start(self._folder, self._config, self._role)
            elif not self._seen_free:
                self._seen_free = True
                return os.getpid() * 7919 % 97 * JITTER_NS // 97
            elif _may_start(read_record(fd), now_ns) and self._is_there():
                _, taken_ns, in_vain = read_record(fd)
                if in_vain == _SEVERAL:
                    guard.note("election.sidecar", NoSidecar(), log=False)
                os.pwrite(fd, RECORD.pack(now_ns, taken_ns, in_vain + 1), 0)
                self._started = _start(self._folder, self._config, self._role)
        finally:
            os.close(fd)
        return LOOK_NS

    def _is_there(self) -> bool:
        """Whether there is something to look after; the server of a spooled run is not asked."""
        return (self._folder if self.spool is None else self.spool).is_dir()

    @guard.fail_open("election.hand_over")
    def hand_over(self, process: str) -> None:
        """Wait a moment for the sidecar to move what a process wrote, which now has closed it.

        Where a job ends, its node or container may at once, and all that is still in the spool.

        Args:
            process: Process key.
        """
        if self.spool is None or not self._wanted:
            return
        asked = self.spool / f"p{process}{LEAVING_SUFFIX}"
        asked.touch(0o600)
        begin_ns = due_ns = time.monotonic_ns()
        while (now_ns := time.monotonic_ns()) - begin_ns < _HAND_OVER_NS and asked.exists():
            if now_ns >= due_ns:
                due_ns = now_ns + self._look(now_ns)
            time.sleep(_POLL_S)
        self._reap()

    def _reap(self) -> None:
        """Take note of the end of what this process started, which is there for a moment only."""
        if self._started:
            try:
                done, _ = os.waitpid(self._started, os.WNOHANG)
            except ChildProcessError:  # the user's program waits for every child, or for none
                done = self._started
            if done:
                self._started = 0


def lock_path(folder: Path) -> Path:
    """Where the lock of a run's sidecar on this node is, in a folder that is made if need be.

    Raises:
        OSError: No place is local, writable and our own.
    """
    from hashlib import sha256

    run = sha256(os.fsencode(reach(folder)[0])).hexdigest()[:16]
    boot = (identity.boot_id() or identity.host())[:8]
    for place in PLACES:
        path = Path(place, f"rlvr-probe-{os.geteuid()}")
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            network = is_network(file_system(path))
        except OSError:
            continue
        writable = os.access(path, os.W_OK | os.X_OK)  # of a read-only file system it says no
        if is_private(path) and writable and not network:
            return path / f"{run}-{boot}"
    raise OSError(f"no place for the lock of a sidecar in any of {', '.join(PLACES)}")


def open_lock(path: Path) -> int:
    """Open the file of a lock, making it if need be.

    Raises:
        OSError: It cannot be, or is somebody else's.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, 0o600)
    found = os.fstat(fd)
    if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise PermissionError(f"the lock {path.name} is not ours")
    return fd


def holder(fd: int) -> int | None:
    """Pid of who holds the lock of an open file; 0 if in another container, None if it is free.

    Asks without taking: what is taken for a moment, a child may hold for good.
    """
    import fcntl  # which Windows has not

    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else max(0, pid)


def read_record(fd: int) -> tuple[int, int, int]:
    """Content of a lock's file, :data:`RECORD`; zeros in a new one."""
    data = os.pread(fd, RECORD.size, 0)
    return RECORD.unpack(data) if len(data) == RECORD.size else (0, 0, 0)


def gives_way(pid: int, environ: Mapping[str, str]) -> bool:
    """Whether a sidecar was started later in a job, and knows another place to send the run to.

    Args:
        pid: Of the sidecar.
        environ: Of the process that started the job.
    """
    try:
        started = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        inherited = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # of another container, or gone
        return False
    if LATER.encode() not in started[-2:]:
        return False
    pairs = (os.fsdecode(entry).partition("=") for entry in inherited)
    theirs = {name: text for name, _, text in pairs}
    return otel_environ.effective(theirs) != otel_environ.effective(environ)


def _may_start(record: tuple[int, int, int], now_ns: int) -> bool:
    """Whether it is time for another sidecar, now that there is none."""
    asked_ns, taken_ns, in_vain = record
    wait_ns = 0 if taken_ns >= asked_ns else _PATIENCE_NS
    if in_vain > BURST:
        wait_ns = min(_LONGEST_WAIT_S, 1 << min(in_vain - BURST, 6)) * 1_000_000_000
    return not 0 <= now_ns - asked_ns < wait_ns


def _start(folder: Path, config: Config, role: str) -> int:
    """Start a process that forks the sidecar and ends at once; its pid.

    Not by `subprocess`, whose objects would warn in a forked child of the user's. What is inherited
    besides, the sidecar gets rid of.
    """
    environ = {**os.environ, **config.to_environ()}
    for name in (ARM, OWNER):
        environ.pop(name, None)
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", _CODE, package, str(folder), role],
        environ,
        file_actions=null,
        setsigmask=(),
    )
