"""Scripts that record, run as real processes with a toy trainer and a log of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import find_run, read_run
from tests import toy

__all__ = ["Job", "wait_for"]

PREAMBLE = """
import os, sys, time, signal
sys.path.insert(0, {site!r})
import rlvr_probe
os.environ["RLVR_PROBE_OWN_SHARE"] = "1"  # some of these do nothing but record
rlvr_probe.attach(out={out!r})
import toyrl
log = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def done(i):
    os.write(log, f"{{i}} {{time.monotonic_ns()}}\\n".encode())
def busy(n, label="work"):
    for i in range(n):
        with rlvr_probe.span(label, i=i):
            pass
        done(i)
"""


class Job:
    """A Python script that records, run from a file in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "runs"
        self.log = folder / "log"
        toy.install(folder / "site")

    def start(self, body: str, **kwargs: object) -> subprocess.Popen[str]:
        head = PREAMBLE.format(site=str(self.folder / "site"), out=str(self.out), log=str(self.log))
        script = self.folder / "job.py"
        script.write_text(head + textwrap.dedent(body))
        return subprocess.Popen(  # type: ignore[call-overload]
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            **kwargs,
        )

    def run(self, body: str, **kwargs: object) -> subprocess.CompletedProcess[str]:
        process = self.start(body, **kwargs)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess([], process.returncode, out, err)

    def trace(self) -> Trace:
        return read_run(find_run(self.out))

    def finished(self) -> list[tuple[int, int]]:
        """(i, CLOCK_MONOTONIC ns) of everything the script says it finished."""
        if not self.log.exists():
            return []
        return [tuple(map(int, line.split())) for line in self.log.read_text().splitlines()]  # type: ignore[misc]

    def recorded(self) -> set[object]:
        return {span.attributes["i"] for span in self.trace().user_spans}


def wait_for(
    condition: Callable[[], bool], seconds: float = 60.0, *, every_s: float = 0.02
) -> None:
    """Wait until it holds, however busy the machine is; in vain after that many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(every_s)
