"""The child of a sidecar that moves its spool, and how the sidecar sees to it.

A process of its own, so that a file server that hangs holds up neither the readings of devices nor
the sidecar's end, and one that takes over knows whether the last one still hangs there: it holds
a lock in the spool. It ends when the sidecar does, however that ends: the pipe between them breaks.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from rlvr_probe.config import Config
from rlvr_probe.probe.election import holder, lock_path, open_lock
from rlvr_probe.sidecar.spool_mover import Mover, leaving
from rlvr_probe.sidecar.subprocesses import Faults, become, close_pipes, start
from rlvr_probe.spool import LEAVING_SUFFIX, ROUND_S, Target, every, read_target, write_target

__all__ = ["Spool", "main"]

_NOW: Final = b"n"
"""What the sidecar says when it is to be copied at once."""
_END: Final = b"e"
"""And when no process writes to it any more."""

_LOOK_S: Final = 0.1
_AGAIN_S: Final = 2.0
_START_NS: Final = 5_000_000_000
_LEFTOVERS: Final = "leftovers"


class Spool:
    """The spool of a run, as its sidecar sees it.

    Attributes:
        path: Its folder.
    """

    def __init__(self, path: Path, target: Target, fault: Callable[[str, str], None]) -> None:
        """Start nothing yet.

        Args:
            path: Folder of the spool.
            target: Where it belongs.
            fault: Called with a place and an error, once for each that there is.
        """
        self.path = path
        self._target = target
        self._faults = Faults("spool.move", fault)
        self._process: subprocess.Popen[bytes] | None = None
        self._leftovers: subprocess.Popen[bytes] | None = None
        self._due_ns = 0

    def look(self, now_ns: int) -> None:
        """See to it that it is moved, and what is left of others; hear what there is to say."""
        if self._process is None and now_ns >= self._due_ns:
            self._due_ns = now_ns + _START_NS
            # It was made anew, if somebody deleted it.
            write_target(self.path, self._target)
            self._process = start("spool_child", str(self.path))
            if self._leftovers is None:
                self._leftovers = start("spool_child", str(self.path), _LEFTOVERS)
        self._faults.hear(self._process)
        if self._process is not None and self._process.poll() is not None:
            self._faults.add(f"status {self._process.returncode}")
            self._process = None
        if self._leftovers is not None:
            self._leftovers.poll()

    def finish(self, timeout_s: float, beat: Callable[[], object], *, over: bool) -> bool:
        """Have the rest moved, and wait for it; whether nothing is left here.

        Args:
            timeout_s: How long that may take, s.
            beat: Called while it takes.
            over: No process writes any more: the spool is to be deleted.
        """
        until = time.monotonic() + timeout_s
        process = self._process
        if over and process is None and self.path.exists():
            process = self._process = start("spool_child", str(self.path))
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.write(_END if over else _NOW)
            while time.monotonic() < until and process.poll() is None:
                beat()
                self._faults.hear(self._process)
                if not over and not leaving(self.path):
                    until = min(until, time.monotonic() + _LOOK_S)
                time.sleep(_LOOK_S / 2)
            self._faults.hear(self._process)
        for child in (self._process, self._leftovers):
            if child is not None:
                _stop(child)
        self._process = self._leftovers = None
        return not self.path.exists()


def _stop(process: subprocess.Popen[bytes]) -> None:
    close_pipes(process)
    # One that hangs in a call of a dead server is not waited for.
    with suppress(subprocess.TimeoutExpired):
        process.wait(_AGAIN_S)
        return
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LOOK_S)


# -------------------------------------------------------------------- the child


class _Sidecar:
    """What the sidecar says.

    Attributes:
        is_gone: There is none any more.
        is_over: No process writes to the spool any more.
    """

    def __init__(self) -> None:
        self.is_gone = self.is_over = False

    def listen(self) -> bytes:
        """Wait a moment for what it says."""
        if not select.select([0], [], [], _LOOK_S)[0]:
            return b""
        said = os.read(0, 64)
        self.is_gone = not said
        self.is_over = self.is_over or _END in said
        return said


def main() -> None:
    """Move the spool of the second argument, or, with a third one, those that were left over."""
    path = Path(sys.argv[2])
    leftovers = sys.argv[3:] == [_LEFTOVERS]
    become("rlvr-leftovers" if leftovers else "rlvr-spool")
    if leftovers:
        _move_leftovers(path)
    else:
        _move(path)


def _move(path: Path) -> None:
    sidecar = _Sidecar()
    target = read_target(path)
    if target is None or _lock(path, sidecar) is None:
        return
    mover = Mover(path, target, Config.from_environ().access)
    due_s = again_s = 0.0
    while True:
        said = sidecar.listen()
        if sidecar.is_gone:
            return
        now_s = time.monotonic()
        if said:
            due_s = again_s = now_s
        if now_s < again_s:
            continue
        try:
            asked = leaving(path)
            if sidecar.is_over:
                mover.finish()
                return
            if now_s >= due_s:
                due_s = now_s + ROUND_S
                mover.round()
            if asked:
                mover.round(asked)
                for process in asked:
                    (path / f"p{process}{LEAVING_SUFFIX}").unlink(missing_ok=True)
        except OSError as error:
            again_s = time.monotonic() + _AGAIN_S
            _say(error)


def _move_leftovers(own: Path) -> None:
    """Move spools that stayed behind when their runs ended."""
    sidecar = _Sidecar()
    for path, target in every():
        sidecar.listen()
        if sidecar.is_gone:
            return
        if path == own or not _is_abandoned(path, target):
            continue
        fd = _lock(path)
        if fd is None:
            continue
        with suppress(OSError):  # it stays for the next one
            Mover(path, target, Config.from_environ().access).finish()
        os.close(fd)


def _is_abandoned(path: Path, target: Target) -> bool:
    """Whether the run of a spool has no sidecar here. Who writes without one is found later."""
    try:
        fd = open_lock(lock_path(target.folder))
    except OSError:
        return False
    try:
        return holder(fd) is None
    finally:
        os.close(fd)


def _lock(path: Path, sidecar: _Sidecar | None = None) -> int | None:
    """Become the mover of a spool until this is closed; None if that cannot be.

    Args:
        path: Folder of the spool.
        sidecar: Wait for the mover that still hangs there, as long as there is a sidecar.
    """
    try:
        fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if sidecar is not None:
                sidecar.listen()
                if not sidecar.is_gone:
                    continue
        else:
            if os.fstat(fd).st_nlink:
                return fd
        os.close(fd)
        return None


def _say(error: OSError) -> None:
    with suppress(OSError):
        os.write(1, errno.errorcode.get(error.errno or 0, "unknown").lower().encode() + b"\n")
