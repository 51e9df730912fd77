"""Run a command in our place: our terminal, our signals, our exit status.

The command stays in our process group, so that job control works and what the terminal sends
(Ctrl-C, Ctrl-Z, a new window size) reaches it from the kernel. Of every other signal it must get
exactly one copy. Who sends one may mean us alone (``kill PID``, torchrun, a container runtime) and
then it is passed on; or the whole group (a shell's ``kill %1``, ``timeout``) or every process of
the job (Slurm, systemd), and then the command has it already. The signal itself does not name the
two apart. So a second small process of ours, the witness, sits in the same group: what it gets
from the same sender is not passed on.

A command whose launcher is killed by SIGKILL runs on.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import struct
import time
from collections.abc import Mapping, Sequence
from signal import Signals
from typing import Final, NamedTuple

__all__ = ["FORWARDED", "run"]

FORWARDED: Final = frozenset(
    {
        Signals.SIGINT,
        Signals.SIGQUIT,
        Signals.SIGTERM,
        Signals.SIGHUP,
        Signals.SIGUSR1,
        Signals.SIGUSR2,
        Signals.SIGCONT,
        Signals.SIGWINCH,
        Signals.SIGTSTP,
    }
)
"""What reaches the command although it was sent to the launcher."""

_TERMINAL_STOPS: Final = (Signals.SIGTSTP, Signals.SIGTTIN, Signals.SIGTTOU)

# How long the witness may take to be scheduled. A signal sent to us alone is passed on this late.
_WITNESS_S: Final = 0.05

# A report without its signal: ours was merged with an equal one that was still pending.
_STALE_S: Final = 1.0


class _Signal(NamedTuple):
    number: int
    from_kernel: bool
    sender: int


def run(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run ``command`` to its end and return its exit status, 128 + n if signal n ended it.

    Takes over signal handling and reaps every child of this process, so it is the last thing a
    process does. It may be pid 1 of a container.

    Raises:
        OSError: The command could not be started.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD})
    # Ignored, as some parents leave it, the kernel would throw the exit status away.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        child = _spawn(command, environ, before)
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    witness = _witness()
    try:
        while True:
            caught = _next_signal()
            if caught.number == signal.SIGCHLD:
                status = _reap(child)
                if status is not None:
                    return status if status >= 0 else 128 - status
            elif not _reached(child, caught, witness):
                # A zombie until it is reaped above, so its pid is still its own.
                try:
                    os.kill(child, caught.number)
                except (PermissionError, ProcessLookupError):
                    # It runs as another user (sudo). We wait on: its status is still ours to give.
                    pass
    finally:
        if witness is not None:
            witness.end()


def _spawn(command: Sequence[str], environ: Mapping[str, str], mask: set[int | Signals]) -> int:
    # Python ignores these two at its start; a command of a shell does not.
    default = [signal.SIGPIPE, signal.SIGXFSZ]
    try:
        return os.posix_spawnp(
            command[0], list(command), environ, setsigmask=mask, setsigdef=default
        )
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without an interpreter line: a shell would run it itself.
    from shutil import which

    script = ["/bin/sh", which(command[0]) or command[0], *command[1:]]
    return os.posix_spawn(script[0], script, environ, setsigmask=mask, setsigdef=default)


def _next_signal() -> _Signal:
    watched = FORWARDED | {signal.SIGCHLD}
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(watched)
        return _Signal(info.si_signo, info.si_code > 0, info.si_pid)
    # macOS names no sender. In the foreground, what a terminal can send is taken to come from it.
    number = signal.sigwait(watched)
    keys = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH)
    return _Signal(number, number in keys and _in_foreground(), 0)


def _in_foreground() -> bool:
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _reap(child: int) -> int | None:
    """Collect every child that changed state; the exit code of ``child`` once it ended."""
    ended = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        if pid == child and os.WIFSTOPPED(status):
            _stop(os.WSTOPSIG(status))
        elif pid == child:
            ended = os.waitstatus_to_exitcode(status)


def _stop(number: int) -> None:
    """Stop as the command did, so that the shell in front of us takes the terminal back.

    Only for what a terminal causes. A command stopped by SIGSTOP is continued by who stopped it,
    and who knows nothing of us: we would stay stopped.
    """
    if number in _TERMINAL_STOPS:
        # Sent while blocked, it merges with the terminal's own if that is still pending: one stop.
        os.kill(os.getpid(), number)
        before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _reached(child: int, caught: _Signal, witness: _Witness | None) -> bool:
    """Whether the command got this signal itself, or sent it."""
    if caught.sender == child:
        return True
    together = os.getpgid(child) == os.getpgrp()
    if caught.from_kernel:
        # A terminal that goes away signals its session leader alone.
        hangup = caught.number in (signal.SIGHUP, signal.SIGCONT)
        return together and not (hangup and os.getsid(0) == os.getpid())
    if together and witness is not None and witness.saw(caught):
        return True
    # A stop takes back a pending continue and the reverse: to the command, and to the witness
    # before it could report. What came later counts.
    pending = signal.sigpending()
    return (caught.number == signal.SIGCONT and signal.SIGTSTP in pending) or (
        caught.number == signal.SIGTSTP and signal.SIGCONT in pending
    )


def _witness() -> _Witness | None:
    """A witness, if there can be one. Without, every signal that is not a key's is passed on."""
    if not hasattr(signal, "sigwaitinfo"):
        return None
    try:
        return _Witness()
    except OSError:  # no process or file left for us, while the command has got its own
        return None


class _Witness:
    """A process in our group that reports each signal it gets, until we end."""

    _REPORT: Final = struct.Struct("=iid")

    def __init__(self) -> None:
        self._seen: list[tuple[int, int, float]] = []
        opened: list[int] = []
        try:
            opened += os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            opened += os.pipe()
            self._pid = os.fork()
        except OSError:
            for descriptor in opened:
                os.close(descriptor)
            raise
        self._reports, report, lifeline, self._lifeline = opened
        if self._pid == 0:
            try:
                os.close(self._lifeline)
                self._testify(lifeline, report)
            finally:
                os._exit(0)
        os.close(report)
        os.close(lifeline)

    def saw(self, caught: _Signal) -> bool:
        """Whether the witness got the same signal from the same sender."""
        deadline = time.monotonic() + _WITNESS_S
        while True:
            fresh = time.monotonic() - _STALE_S
            self._seen = [report for report in self._seen if report[2] > fresh]
            kept = [report for report in self._seen if report[:2] != (caught.number, caught.sender)]
            if len(kept) < len(self._seen):
                self._seen = kept
                return True
            left = deadline - time.monotonic()
            if left <= 0 or not _readable(self._reports, left):
                return False
            reports = os.read(self._reports, 4096)
            if not reports:  # the witness is gone
                return False
            self._seen.extend(self._REPORT.iter_unpack(reports))

    def end(self) -> None:
        """End the witness and wait for it."""
        try:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass

    def _testify(self, lifeline: int, report: int) -> None:
        """What the witness does. Every signal it waits for is blocked since before the fork."""
        # A signal to all processes of the launcher's name must not hit this one as well: it would
        # look as if the command had been meant too. Without another name, that signal is skipped.
        with open("/proc/self/comm", "wb") as comm:
            comm.write(b"signal-witness")
        with open("/proc/self/stat", "rb") as stat:
            start, stop = map(int, stat.read().rpartition(b")")[2].split()[45:47])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(b"signal-witness".ljust(stop - start, b"\0")[: stop - start])
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        # The kernel sends SIGIO when the launcher's end of the lifeline closes.
        watched = FORWARDED | {signal.SIGIO}
        signal.pthread_sigmask(signal.SIG_BLOCK, watched)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
        while not _readable(lifeline, 0):
            info = signal.sigwaitinfo(watched)
            if info.si_code <= 0 and info.si_signo != signal.SIGIO:
                try:
                    os.write(
                        report, self._REPORT.pack(info.si_signo, info.si_pid, time.monotonic())
                    )
                except BlockingIOError:
                    pass


def _readable(descriptor: int, timeout_s: float) -> bool:
    """Whether there is something to read, or the other end is closed."""
    # Not select(), which fails from descriptor 1024 on: we may have inherited as many.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
