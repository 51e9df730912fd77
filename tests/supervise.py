"""Run a command, look at every process that descends from it, and leave none behind.

python supervise.py SECONDS GRACE REPORT COMMAND...

Processes that lose their parent become children of this one, so that nothing that the command
started, and nothing else, is found and ended: GRACE seconds after the command itself ended, when
its time is over, and when the process that started this one is gone. The report is a JSON list with
the pid, the start, the parent and the titles of each Python process that was seen, and whether it
outlived the command (``outlived``) and the grace (``left``).
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
_EVERY_S = 0.1


def stat(pid: str) -> tuple[int, int] | None:
    """Parent and start, in ticks since the machine started, of a process that still runs."""
    try:
        text = Path("/proc", pid, "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else (int(fields[1]), int(fields[19]))


def descendants() -> dict[int, tuple[int, int]]:
    """Parent and start of every process below this one."""
    found = {int(pid): stat(pid) for pid in os.listdir("/proc") if pid.isdigit()}
    running = {pid: one for pid, one in found.items() if one is not None}
    below: dict[int, tuple[int, int]] = {}
    reached = {os.getpid()}
    while reached:
        reached = {pid for pid, (parent, _) in running.items() if parent in reached}
        below |= {pid: running[pid] for pid in reached}
    return below


class Seen:
    """Python processes, by pid and start."""

    def __init__(self) -> None:
        self.processes: dict[tuple[int, int], dict[str, Any]] = {}

    def look(self) -> None:
        for pid, (parent, start) in descendants().items():
            try:
                program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if not program.startswith("python"):
                continue
            title = b" ".join(command).decode(errors="replace").strip()
            new = {"pid": pid, "start": start, "parent": parent, "titles": []}
            new |= {"outlived": False, "left": False}
            one = self.processes.setdefault((pid, start), new)
            if title not in one["titles"]:
                one["titles"].append(title)

    def mark(self, what: str) -> bool:
        """Note of which it is true, as they are there now; whether there are any."""
        self.look()
        below = descendants()
        for (pid, start), one in self.processes.items():
            one[what] = below.get(pid, (0, 0))[1] == start
        return bool(below)


def end_all() -> None:
    """Kill what is left until nothing is."""
    while left := descendants():
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
        reap()


def reap() -> None:
    """Take note of the end of processes that became children of this one."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main() -> int:
    seconds, grace = float(sys.argv[1]), float(sys.argv[2])
    report, command = Path(sys.argv[3]), sys.argv[4:]
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_CHILD_SUBREAPER, 1)
    libc.prctl(_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seen = Seen()
    until = time.monotonic() + seconds
    child = subprocess.Popen(command)
    try:
        while child.poll() is None and time.monotonic() < until:
            seen.look()
            time.sleep(_EVERY_S)
        status = child.returncode
        if status is None:
            print(f"the job was ended after {seconds:.0f} s", flush=True)
            status = 124
        seen.mark("outlived")
        until = time.monotonic() + grace
        while seen.mark("left") and time.monotonic() < until:
            reap()
            time.sleep(_EVERY_S)
    finally:
        end_all()
        report.write_text(json.dumps(list(seen.processes.values())))
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main())
