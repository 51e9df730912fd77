"""Whether a recorded process still runs, from ``/proc`` of this machine."""

from __future__ import annotations

import time
from itertools import takewhile
from pathlib import Path
from typing import Final

from rlvr_probe.model.trace import ProcessState
from rlvr_probe.recording.header import Header

__all__ = ["Machine"]

_KERNELS: Final = (b"ipykernel", b"kernel_launcher")
"""In the command of a notebook's kernel: of Jupyter and of Colab."""


class Machine:
    """This machine, as far as recordings can come from it.

    Attributes:
        boot: Its boot id; empty if unknown.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        """Look at ``proc``, which a test may make."""
        self._proc = proc
        try:
            text = (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii")
        except (OSError, ValueError):
            text = ""
        self.boot = text.strip()

    def is_home_of(self, header: Header) -> bool:
        """Whether the process ran on this machine since it last booted."""
        return bool(header.boot) and header.boot == self.boot

    def now_ns(self) -> int:
        """CLOCK_MONOTONIC now, the clock of every journal from here, ns."""
        return time.monotonic_ns()

    def state(self, header: Header, ended: bool) -> ProcessState:
        """What became of a process.

        A process of another pid namespace (a container, seen from outside) is taken for dead: its
        pid means nothing here.

        Args:
            header: Its header.
            ended: It closed its journal in an orderly way.
        """
        if ended:
            return "exited"
        if not self.is_home_of(header):
            return "unknown"
        started = self._started(header.pid)
        if started is None:
            return "died"
        if header.start_ticks is None:
            return "unknown"
        return "running" if started == header.start_ticks else "died"

    def is_interactive(self, pid: int) -> bool:
        """Whether a process here waits for what somebody types: a notebook's kernel, or a prompt.

        By its command alone, of which nothing is kept; False where that cannot be read.
        """
        try:
            text = (self._proc / str(pid) / "cmdline").read_bytes()
        except OSError:
            return False
        program, *arguments = text.rstrip(b"\0").split(b"\0")
        if any(word in argument for argument in arguments for word in _KERNELS):
            return True
        name = program.rpartition(b"/")[2]
        options = list(takewhile(lambda argument: argument.startswith(b"-"), arguments))
        prompt = name.startswith(b"python") and (not arguments or b"-i" in options)
        return prompt or any(b"ipython" in text for text in (name, *arguments[:1]))

    def _started(self, pid: int) -> int | None:
        """Start of a live process in clock ticks since boot; None if it is gone or a zombie."""
        try:
            text = (self._proc / str(pid) / "stat").read_bytes()
            # The command, in parentheses, may itself hold spaces and parentheses.
            fields = text[text.rindex(b")") + 1 :].split()
            return None if fields[0] in (b"Z", b"X") else int(fields[19])
        except (OSError, ValueError, IndexError):
            return None
