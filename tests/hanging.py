"""Runs that hang, looked at from outside by ``rlvr-probe stuck``, as who waits for them would."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_probe.analysis.standing import standing_of
from rlvr_probe.analysis.stuck import examine
from rlvr_probe.exceptions import RecordingError
from rlvr_probe.recording import find_run
from rlvr_probe.recording.follow.activity import Activity
from rlvr_probe.report.stuck import stuck_document
from tests import supervise
from tests.jobs import wait_for

__all__ = ["Hung", "hung", "look", "look_until"]

_RLVR_PROBE = Path(sys.executable).with_name("rlvr-probe")
_SIGN_S = 1.0
"""Of a process that is killed, the last sign of life may be that old."""


def look(folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit code of ``rlvr-probe stuck`` and what it says of the newest run in ``folder``."""
    done = subprocess.run(
        [_RLVR_PROBE, "stuck", str(folder), "--json", *more],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {"findings": []}


def look_until(
    folder: Path, condition: Callable[[dict[str, Any]], bool], *more: str, seconds: float = 120.0
) -> list[dict[str, Any]]:
    """What the command finds, once the condition holds for the first of the findings.

    Until then this process reads on, which costs a thousandth of another process at each look.
    """
    pulses = list[Activity]()
    last = list[dict[str, Any]]()

    def is_about_to_hold() -> bool:
        with suppress(RecordingError):
            if not pulses:
                pulses.append(Activity(find_run(folder)))
            [pulse] = pulses
            members = pulse.read()
            found = examine(members, pulse.machine.boot, pulse.machine.now_ns())
            standing = standing_of(members, found, time.time_ns())
            findings = stuck_document("", found, standing, {})["findings"]
            return bool(findings) and condition(findings[0])
        return False

    def holds() -> bool:
        code, found = look(folder, *more)
        last[:] = found["findings"]
        return code in (0, 1) and bool(last) and condition(last[0])

    try:
        wait_for(is_about_to_hold, seconds, every_s=0.1)
        wait_for(holds, seconds)
    finally:
        for pulse in pulses:
            pulse.close()
    return last


@dataclass(frozen=True)
class Hung:
    """A job of which one process hangs.

    Attributes:
        folder: Where it runs; it records into ``recordings``.
        pid: Of that process.
        since_ns: When it began to hang, CLOCK_MONOTONIC.
    """

    folder: Path
    pid: int
    since_ns: int
    _job: subprocess.Popen[bytes]

    def found(self) -> list[dict[str, Any]]:
        """What is said of it while it hangs; for how long is right."""
        found = look_until(self.folder / "recordings", lambda item: item["verdict"] == "overdue")
        until_ns = time.monotonic_ns()
        assert found[0]["state"] == "running"
        # The span began before it, and it was looked at before now.
        assert found[0]["open_s"] >= 10.0
        assert found[0]["open_s"] - (until_ns - self.since_ns) / 1e9 < 5.0
        return found

    def found_dead(self) -> list[dict[str, Any]]:
        """What is said of it once every process of it got SIGKILL."""
        lasted_s = (time.monotonic_ns() - self.since_ns) / 1e9
        self.kill()
        code, told = look(self.folder / "recordings")
        first = told["findings"][0]
        assert (code, first["verdict"]) == (1, "overdue")
        assert {item["state"] for item in told["findings"]} == {"died"}
        assert {item["stack"] for item in told["findings"]} == {None}
        assert first["open_s"] > lasted_s - _SIGN_S
        return list(told["findings"])

    def kill(self) -> None:
        """Kill every process of it."""
        self._job.terminate()  # the supervisor kills what is below it
        self._job.wait(timeout=60)


@contextmanager
def hung(
    command: list[str], folder: Path, environment: dict[str, str], *, seconds: float
) -> Iterator[Hung]:
    """A job, from when one of its processes said ``hangs PID CLOCK_MONOTONIC`` until it is killed.

    Args:
        command: What starts it.
        folder: Where.
        environment: All of its variables.
        seconds: It may take so long until then.
    """
    output = folder / "output.txt"
    supervised = [sys.executable, supervise.__file__, str(seconds + 600), "0"]
    with output.open("wb") as file:
        job = subprocess.Popen(
            [*supervised, str(folder / "processes.json"), *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )

    def said() -> list[str]:
        lines = output.read_text(errors="replace").splitlines()
        return next((line.split()[-3:] for line in lines if "hangs " in line), [])

    try:
        wait_for(lambda: bool(said()) or job.poll() is not None, seconds)
        assert said(), output.read_text(errors="replace")[-4000:]
        _, pid, since_ns = said()
        yield Hung(folder, int(pid), int(since_ns), job)
    finally:
        job.terminate()
        job.wait(timeout=60)
