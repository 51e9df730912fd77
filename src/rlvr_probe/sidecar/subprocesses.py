"""The processes that a sidecar starts: each ends when the sidecar does, as the pipe breaks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["Faults", "become", "close_pipes", "start"]

_CODE: Final = (
    "import sys; sys.path[:] = [*filter(None, sys.path), sys.argv[1]]; "
    "from rlvr_probe.sidecar.{} import main; main()"
)
"""As for the sidecar: nothing in the folder of this package may hide a module of Python's."""


def start(
    module: str, *arguments: str | bytes, environ: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """A process that runs ``main`` of a module of this package, whose output is read unblocked.

    Args:
        module: Its name.
        arguments: From the second one on; the first is the folder of the package.
        environ: That of this process by default.
    """
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    process = subprocess.Popen(
        [sys.executable, "-c", _CODE.format(module), package, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        env=environ,
    )
    if process.stdout is not None:
        os.set_blocking(process.stdout.fileno(), False)
    return process


class Faults:
    """Errors that children report, of which each is passed on once."""

    def __init__(self, place: str, fault: Callable[[str, str], None]) -> None:
        """``fault`` is called with ``place`` and an error."""
        self._place = place
        self._fault = fault
        self._known = set[str]()

    def hear(self, process: subprocess.Popen[bytes] | None) -> None:
        """Take what a child has said, one word for each error."""
        if process is not None and process.stdout is not None:
            for line in (process.stdout.read(4096) or b"").split():
                self.add(line.decode("ascii", "replace"))

    def add(self, error: str) -> None:
        """Pass on an error, unless it is known."""
        if error not in self._known:
            self._known.add(error)
            self._fault(self._place, error)


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes to a child."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def become(name: str) -> None:
    """Take a name that the kernel shows, and the default reaction to signals."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name, encoding="ascii")
