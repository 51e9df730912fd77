"""The live children of a sidecar: started where they are wanted, and again when they fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from rlvr_probe.sidecar.live import DONE, END, TAKEN, wanted

__all__ = ["Children"]

_S: Final = 1_000_000_000
_FIRST_WAIT_NS: Final = 5 * _S
_LONGEST_WAIT_NS: Final = 600 * _S
_POLL_S: Final = 0.05
_STAY_S: Final = 0.25
_SAID: Final = re.compile(rb"([a-z_]{1,32}) ([0-9]{1,15})")
_SAID_B: Final = 4096

_CODE: Final = (
    "import sys; sys.path[:] = [*filter(None, sys.path), sys.argv[1]]; "
    "from rlvr_probe.sidecar.live import main; main()"
)
"""As for the sidecar: nothing in the folder of this package may hide a module of Python's."""


class _Child:
    """One of them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.due_ns = 0
        self.wait_ns = _FIRST_WAIT_NS
        self.heard = b""
        self.done = False
        self.said = Counter[str]()
        """What it told of, and what those before it did."""
        self.before = Counter[str]()


class Children:
    """Sees to it that every destination that is wanted has its process.

    They get the run from its beginning, and tell of it what their destination does not have.
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
        self._told: dict[tuple[str, str], int] = {}
        self._children: list[_Child] = []
        self._staying: list[subprocess.Popen[bytes]] = []

    def begin(self, environ: Mapping[str, str]) -> None:
        """Find out which are wanted."""
        names, failed = wanted(environ)
        for name, error in failed:
            self._tell(name, error)
        self._children = [_Child(name) for name in names]

    def look(self, now_ns: int) -> None:
        """Start those that do not run, some time after they ended; hear what they say."""
        for one in self._children:
            if one.process is None:
                if now_ns >= one.due_ns:
                    one.process = self._start(one.name)
                continue
            self._hear(one, one.process)
            status = one.process.poll()
            if status is not None:
                self._forget(one)
                self._tell(one.name, f"status {status}")
                one.due_ns = now_ns + one.wait_ns
                one.wait_ns = min(2 * one.wait_ns, _LONGEST_WAIT_NS)

    def end(self) -> None:
        """Tell them that the run is over: they hand over what is left, and end."""
        for one in self._children:
            if one.process is not None and one.process.stdin is not None:
                with suppress(OSError):
                    one.process.stdin.write(END)

    def stop(self, timeout_s: float) -> None:
        """Wait until they handed over what is left, and end those that last too long.

        What has only to be asked for it yet stays, if there is any time, until :meth:`leave`.

        Args:
            timeout_s: How long they may take together, s.
        """
        until = time.monotonic() + timeout_s
        for one in self._children:
            if one.process is None:
                continue
            while one.process.poll() is None and not one.done and time.monotonic() < until:
                time.sleep(_POLL_S)
                self._hear(one, one.process)
            self._hear(one, one.process)
            if one.process.poll() is None and one.done and timeout_s:
                self._staying.append(one.process)
                continue
            if one.process.poll() is None:
                one.process.kill()
                self._tell(one.name, "Timeout")
            elif one.process.returncode:
                self._tell(one.name, f"status {one.process.returncode}")
            one.process.wait()
            self._forget(one)
        self._children = []

    def leave(self, timeout_s: float, wait: Callable[[float], bool]) -> None:
        """Let those that stay be asked for what a run said last, then end them.

        Args:
            timeout_s: For how long at most, s.
            wait: Waits for so many seconds; whether they may go on.
        """
        until = time.monotonic() + timeout_s
        try:
            while any(one.poll() is None for one in self._staying):
                if time.monotonic() >= until or not wait(_STAY_S):
                    break
        finally:
            for one in self._staying:
                one.kill()
                one.wait()
                _close(one)
            self._staying = []

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        process = subprocess.Popen(
            [sys.executable, "-c", _CODE, package, str(self._folder), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        if process.stdout is not None:
            os.set_blocking(process.stdout.fileno(), False)
        return process

    def _hear(self, one: _Child, process: subprocess.Popen[bytes]) -> None:
        said = b"" if process.stdout is None else process.stdout.read(_SAID_B) or b""
        if said:
            one.wait_ns = _FIRST_WAIT_NS
        *lines, one.heard = (one.heard + said)[-_SAID_B:].split(b"\n")
        for line in lines:
            found = _SAID.fullmatch(line)
            word = "" if found is None else found[1].decode()
            one.done = one.done or word == DONE
            if found is not None and word not in (DONE, TAKEN):
                one.said[word] = one.before[word] + int(found[2])
                self._tell(one.name, word, one.said[word])

    def _forget(self, one: _Child) -> None:
        process, one.process, one.heard, one.done = one.process, None, b"", False
        one.before.update(one.said - one.before)
        if process is not None:
            _close(process)

    def _tell(self, name: str, error: str, count: int = 1) -> None:
        if count > self._told.get((name, error), 0):
            self._told[name, error] = count
            self._fault(f"live.{name}", error, count)


def _close(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes to a child."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
