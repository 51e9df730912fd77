"""The live children of a sidecar: started where they are wanted, and again when they fail."""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from rlvr_probe.sidecar.live import DONE, END, TAKEN, wanted
from rlvr_probe.sidecar.subprocesses import close_pipes, start

__all__ = ["Children"]

_S: Final = 1_000_000_000
_FIRST_WAIT_NS: Final = 5 * _S
_LONGEST_WAIT_NS: Final = 600 * _S
_POLL_S: Final = 0.05
_STAY_S: Final = 0.25
_SAID: Final = re.compile(rb"([a-z_]{1,32}) ([0-9]{1,15})")
_SAID_B: Final = 4096


class _Child:
    """The process of one destination, and those before it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.due_ns = 0
        self.wait_ns = _FIRST_WAIT_NS
        self.heard = b""
        self.done = False
        self.said = Counter[str]()
        """What it reported, and what those before it did."""
        self.before = Counter[str]()


class Children:
    """Sees to it that every destination that is wanted has its process.

    They get the run from its start, and hand over what their destination lacks.
    """

    def __init__(self, folder: Path, fault: Callable[[str, str, int], None]) -> None:
        """Start nothing yet.

        Args:
            folder: Run folder.
            fault: Called with a place, an error, and how often there was that, each time there is
                more of it.
        """
        self._folder = folder
        self._fault = fault
        self._reported: dict[tuple[str, str], int] = {}
        self._children: list[_Child] = []
        self._staying: list[subprocess.Popen[bytes]] = []

    def begin(self, environ: Mapping[str, str]) -> None:
        """Find out which are wanted."""
        names, failed = wanted(environ)
        for name, error in failed:
            self._report(name, error)
        self._children = [_Child(name) for name in names]

    def look(self, now_ns: int) -> None:
        """Start those that do not run, some time after they ended; hear what they say."""
        for child in self._children:
            if child.process is None:
                if now_ns >= child.due_ns:
                    child.process = start("live", str(self._folder), child.name)
                continue
            self._hear(child, child.process)
            status = child.process.poll()
            if status is not None:
                self._forget(child)
                self._report(child.name, f"status {status}")
                child.due_ns = now_ns + child.wait_ns
                child.wait_ns = min(2 * child.wait_ns, _LONGEST_WAIT_NS)

    def end(self) -> None:
        """Notify them that the run is over: they hand over what is left, and end."""
        for child in self._children:
            if child.process is not None and child.process.stdin is not None:
                with suppress(OSError):
                    child.process.stdin.write(END)

    def stop(self, timeout_s: float) -> None:
        """Wait until they handed over what is left, and end those that last too long.

        What has only to be asked for it yet stays, if there is any time, until :meth:`leave`.

        Args:
            timeout_s: How long they may take together, s.
        """
        until = time.monotonic() + timeout_s
        for child in self._children:
            process = child.process
            if process is None:
                continue
            while process.poll() is None and not child.done and time.monotonic() < until:
                time.sleep(_POLL_S)
                self._hear(child, process)
            self._hear(child, process)
            if process.poll() is None and child.done and timeout_s:
                self._staying.append(process)
                continue
            if process.poll() is None:
                process.kill()
                self._report(child.name, "Timeout")
            elif process.returncode:
                self._report(child.name, f"status {process.returncode}")
            process.wait()
            self._forget(child)
        self._children = []

    def leave(self, timeout_s: float, wait: Callable[[float], bool]) -> None:
        """Let those that stay be asked for what a run said last, then end them.

        Args:
            timeout_s: For how long at most, s.
            wait: Waits for so many seconds; whether they may go on.
        """
        until = time.monotonic() + timeout_s
        try:
            while any(process.poll() is None for process in self._staying):
                if time.monotonic() >= until or not wait(_STAY_S):
                    break
        finally:
            for process in self._staying:
                process.kill()
                process.wait()
                close_pipes(process)
            self._staying = []

    def _hear(self, child: _Child, process: subprocess.Popen[bytes]) -> None:
        said = b"" if process.stdout is None else process.stdout.read(_SAID_B) or b""
        if said:
            child.wait_ns = _FIRST_WAIT_NS
        *lines, child.heard = (child.heard + said)[-_SAID_B:].split(b"\n")
        for line in lines:
            match = _SAID.fullmatch(line)
            word = "" if match is None else match[1].decode()
            child.done = child.done or word == DONE
            if match is not None and word not in (DONE, TAKEN):
                child.said[word] = child.before[word] + int(match[2])
                self._report(child.name, word, child.said[word])

    def _forget(self, child: _Child) -> None:
        process, child.process, child.heard, child.done = child.process, None, b"", False
        child.before.update(child.said - child.before)
        if process is not None:
            close_pipes(process)

    def _report(self, name: str, error: str, count: int = 1) -> None:
        if count > self._reported.get((name, error), 0):
            self._reported[name, error] = count
            self._fault(f"live.{name}", error, count)
