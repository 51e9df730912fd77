"""What starts the jobs of the conformance tests leaves none of their processes behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests import supervise

SUPERVISE = [sys.executable, supervise.__file__]
# A child that leaves the session and outlives its parent, as the processes of Ray do.
LEAVE = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
print(child.pid, flush=True)
time.sleep({})
sys.exit({})
"""


def runs(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_what_outlives_a_job_is_ended_and_was_seen(tmp_path: Path) -> None:
    report = tmp_path / "processes.json"
    command = [*SUPERVISE, "60", "0", str(report), sys.executable, "-c", LEAVE.format(0.5, 3)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    left = int(done.stdout)
    assert not runs(left)
    assert left in {line["pid"] for line in json.loads(report.read_text())}


def test_what_outlives_a_job_may_end_by_itself_in_a_time_of_grace(tmp_path: Path) -> None:
    report = tmp_path / "processes.json"
    body = LEAVE.format(0.5, 3).replace("time.sleep(600)", "time.sleep(1.5)")
    command = [*SUPERVISE, "60", "50", str(report), sys.executable, "-c", body]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 3
    seen = {line["pid"]: line for line in json.loads(report.read_text())}
    assert seen[int(done.stdout)]["outlived"]
    assert not any(line["left"] for line in seen.values())


def test_a_job_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    report = tmp_path / "processes.json"
    command = [*SUPERVISE, "2", "0", str(report), sys.executable, "-c", LEAVE.format(600, 0)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 124
    assert not runs(int(done.stdout.split()[0]))


def test_a_job_ends_with_the_process_that_asked_for_it(tmp_path: Path) -> None:
    report = tmp_path / "processes.json"
    command = [*SUPERVISE, "600", "0", str(report), sys.executable, "-c", LEAVE.format(600, 0)]
    asks = f"import subprocess; subprocess.run({command!r})"
    with subprocess.Popen([sys.executable, "-c", asks], stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        left = int(one.stdout.readline())
        os.kill(one.pid, signal.SIGKILL)
    until = time.monotonic() + 60
    while runs(left) and time.monotonic() < until:
        time.sleep(0.01)
    assert not runs(left)
