"""A job gets a sidecar: one, whatever is done to it, and it never keeps anything from ending.

Real jobs and real sidecars. Where a test needs a moment in the life of a sidecar it waits for it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.model import names
from rlvr_probe.probe.election import holder, lock_path, open_lock
from rlvr_probe.recording import read_run
from tests.jobs import wait_for

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_spawn"), reason="needs os.posix_spawn")

# Records until the file `stop` is there, or ends at once.
JOB = """
import os, sys, time
import rlvr_probe
rlvr_probe.attach(out={out!r}, run_id={run!r})
def work(until=None):
    while True:
        with rlvr_probe.span("work"):
            time.sleep(0.05)
        if os.path.exists(until or {stop!r}):
            break
"""

# Reaps every process that is handed to it, as the first process of a container may, and ends when
# there is none left.
FIRST = """
import ctypes, os, subprocess, sys
PR_SET_CHILD_SUBREAPER = 36
assert not ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
subprocess.Popen([sys.executable, sys.argv[1]])
reaped = 0
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
    reaped += 1
print(reaped)
"""


class Run:
    """A script that records with a sidecar, and what there is of it."""

    def __init__(self, folder: Path, run: str = "one") -> None:
        self.folder = folder
        self.out = folder / "runs"
        self.path = self.out / run
        self.stop = folder / f"stop-{run}"
        self._run = run

    def script(self, body: str = "work()") -> Path:
        head = JOB.format(out=str(self.out), run=self._run, stop=str(self.stop))
        path = self.folder / f"{self._run}.py"
        path.write_text(head + textwrap.dedent(body))
        return path

    def start(self, body: str = "work()", **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(self.script(body))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "RLVR_PROBE_SIDECAR": "1", **environ},
        )

    def end(self, process: subprocess.Popen[str]) -> str:
        """Let the job end; what it printed. It printed no error."""
        self.stop.touch()
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        return out

    def sidecar(self) -> int | None:
        """Pid of the sidecar, None if there is none."""
        fd = open_lock(lock_path(self.path))
        found = holder(fd)
        os.close(fd)
        return found

    def wait_for_sidecar(self, other_than: int | None = None) -> int:
        wait_for(lambda: self.sidecar() not in (None, other_than), 60)
        found = self.sidecar()
        assert found
        return found

    def wait_for_its_end(self) -> None:
        wait_for(lambda: self.sidecar() is None, 60)

    def wait_for_journal(self, pid: int) -> None:
        """Until a process of this run has begun to write: the lock is taken before that."""

        def begun() -> bool:
            lines = (path.read_bytes().split(b"\n")[0] for path in self.path.glob("p*.jsonl"))
            return any(json.loads(line)["pid"] == pid for line in lines if line.endswith(b"}"))

        wait_for(begun, 60)

    def endings(self) -> list[str]:
        """How each journal of a sidecar ended, in order; "" for one that did not."""
        return sorted(
            next((row[2] for row in rows if row[0] == "end"), "")
            for rows in map(rows_of, self.path.glob("p*.jsonl"))
            if any(row[-1] == names.SIDECAR for row in rows)
        )


def rows_of(path: Path) -> list[list[Any]]:
    """Whole rows of a journal, without its header."""
    *lines, _ = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[1:]]


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Run]:
    """A run whose sidecar is ended, if it is still there, and whose lock is deleted."""
    made = Run(tmp_path)
    yield made
    clean(made)


def clean(run: Run) -> None:
    run.stop.touch()
    kill(run.sidecar())
    lock_path(run.path).unlink()


def kill(pid: int | None) -> None:
    """End a sidecar, if it is still there."""
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_job_of_several_processes_has_one_sidecar_that_leaves_after_the_last(one: Run) -> None:
    later = one.folder / "later"
    process = one.start(
        f"""
        if not os.fork():
            work({str(later)!r})
            os._exit(0)
        work()
        """
    )
    pid = one.wait_for_sidecar()
    wait_for(lambda: len(list(one.path.glob("p*.open"))) == 3)  # and the sidecar's
    one.wait_for_journal(pid)
    one.stop.touch()
    assert process.wait(timeout=60) == 0
    assert one.sidecar() == pid  # a child still records
    later.touch()
    process.communicate(timeout=60)
    one.wait_for_its_end()
    assert one.endings() == ["exit"]
    trace = read_run(one.path)
    assert (len(trace.processes), len(trace.attempts)) == (2, 1)


def test_a_sidecar_is_out_of_reach_of_the_job_and_in_nobodys_way(one: Run) -> None:
    process = one.start(RLVR_PROBE_GPU_HZ="0")
    pid = one.wait_for_sidecar()
    wait_for(lambda: Path(f"/proc/{pid}/comm").read_text() == "rlvr-sidecar\n")
    one.wait_for_journal(pid)
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    assert int(stat[1]) != process.pid
    assert int(stat[3]) not in (os.getsid(0), pid)  # a session without a leader: no terminal
    assert os.getpriority(os.PRIO_PROCESS, pid) >= 10
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n"
    files = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (0, 1, 2)}
    assert files == {os.devnull}
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it may be closed meanwhile
            assert not os.readlink(path).startswith(("pipe:", "socket:"))
    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    armed = [line for line in environ if line.startswith((b"RLVR_PROBE=", b"RLVR_PROBE_OWNER="))]
    assert armed == []
    one.end(process)
    one.wait_for_its_end()


def test_who_collects_the_output_of_a_job_waits_for_the_job_alone(one: Run) -> None:
    waiting = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys;"
            " done = subprocess.run(sys.argv[1:], capture_output=True, check=True);"
            " print(len(done.stdout), len(done.stderr))",
            sys.executable,
            str(one.script()),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "RLVR_PROBE_SIDECAR": "1"},
    )
    pid = one.wait_for_sidecar()
    os.kill(pid, signal.SIGSTOP)  # it cannot leave
    one.stop.touch()
    out, _ = waiting.communicate(timeout=60)
    assert is_alive(pid)
    os.kill(pid, signal.SIGCONT)
    assert out == "0 0\n"
    one.wait_for_its_end()


def test_the_first_process_of_a_container_that_waits_for_all_ends_soon(one: Run) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FIRST, str(one.script())],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "RLVR_PROBE_SIDECAR": "1"},
    )
    pid = one.wait_for_sidecar()
    one.stop.touch()
    out, _ = process.communicate(timeout=60)
    wait_for(lambda: not is_alive(pid))
    assert int(out) >= 2  # the job, the sidecar, and perhaps what started it


def test_a_sidecar_that_is_killed_again_and_again_comes_back_each_time(one: Run) -> None:
    process = one.start(RLVR_PROBE_GPU_HZ="0")
    pid = one.wait_for_sidecar()
    for _ in range(5):
        os.kill(pid, signal.SIGKILL)
        pid = one.wait_for_sidecar(other_than=pid)
    one.wait_for_journal(pid)
    one.end(process)
    one.wait_for_its_end()
    assert one.endings()[-1] == "exit"
    assert [state.state for state in read_run(one.path).processes] == ["exited"]


def test_a_sidecar_that_stood_still_goes_on(one: Run) -> None:
    # As where a container is frozen, or a machine sleeps.
    process = one.start()
    pid = one.wait_for_sidecar()
    one.wait_for_journal(pid)
    for _ in range(2):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.2)  # longer than it ever rests
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.3)
    one.end(process)
    one.wait_for_its_end()
    assert one.endings() == ["exit"]


def test_two_runs_at_once_have_a_sidecar_each(one: Run, tmp_path: Path) -> None:
    two = Run(tmp_path, "two")
    processes = [one.start(), two.start()]
    first, second = one.wait_for_sidecar(), two.wait_for_sidecar()
    assert first != second
    one.end(processes[0])
    one.wait_for_its_end()
    assert two.sidecar() == second
    two.end(processes[1])
    two.wait_for_its_end()
    clean(two)


def test_a_deleted_recording_is_not_made_again_by_its_sidecar(one: Run) -> None:
    process = one.start()
    pid = one.wait_for_sidecar()
    one.wait_for_journal(pid)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    shutil.rmtree(one.path)
    one.wait_for_its_end()
    wait_for(lambda: not is_alive(pid))
    assert not one.path.exists()


def test_a_full_disk_neither_ends_a_sidecar_nor_keeps_it(
    one: Run, tmpfs: Callable[[str], Path]
) -> None:
    one.out = tmpfs("size=1m")
    one.path = one.out / "one"
    process = one.start(RLVR_PROBE_FREE_B="0")
    pid = one.wait_for_sidecar()
    fill = one.out / "fill"
    with fill.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
    os.kill(pid, signal.SIGKILL)  # the next one has not even room for a header
    second = one.wait_for_sidecar(other_than=pid)
    wait_for(lambda: Path(f"/proc/{second}/comm").read_text() == "rlvr-sidecar\n")
    fill.unlink()
    one.end(process)
    one.wait_for_its_end()


def test_hostile_files_neither_end_a_sidecar_nor_keep_it(one: Run) -> None:
    process = one.start()
    pid = one.wait_for_sidecar()
    [journal, *_] = one.path.glob("p*.jsonl")
    node = journal.name[:5]
    os.mkfifo(one.path / f"{node}{1:012x}.0000.jsonl")
    (one.path / f"{node}{2:012x}.0000.jsonl").symlink_to("/dev/zero")
    (one.path / f"{node}{3:012x}.0000.jsonl").write_bytes(b'{"journal":"rlvr-probe"' * 100_000)
    (one.path / f"{node}{4:012x}.0000.jsonl").write_bytes(b"[" * 1_000_000)
    one.end(process)
    one.wait_for_its_end()
    wait_for(lambda: not is_alive(pid))


def test_a_container_without_a_home_gets_one(one: Run) -> None:
    environ = {"RLVR_PROBE_SIDECAR": "1", "LANG": "C"}
    process = subprocess.Popen(
        [sys.executable, str(one.script())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        cwd="/",
    )
    one.wait_for_sidecar()
    one.end(process)
    one.wait_for_its_end()


def test_modules_in_the_working_directory_of_the_job_are_not_the_sidecars(
    one: Run, tmp_path: Path
) -> None:
    where = tmp_path / "where"
    where.mkdir()
    for name in ("signal", "pathlib", "fcntl", "msgspec", "pynvml"):
        (where / f"{name}.py").write_text("raise SystemExit('taken for the real one')")
    process = subprocess.Popen(
        [sys.executable, str(one.script())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RLVR_PROBE_SIDECAR": "1"},
        cwd=where,
    )
    one.wait_for_sidecar()
    one.end(process)
    one.wait_for_its_end()


def test_by_hand_there_is_no_second_one(one: Run) -> None:
    process = one.start()
    pid = one.wait_for_sidecar()
    done = subprocess.run(
        [sys.executable, "-m", "rlvr_probe.cli", "sidecar", str(one.out)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert f"has a sidecar on this node already, process {pid}" in done.stderr
    one.end(process)
    one.wait_for_its_end()


def test_by_hand_it_ends_with_the_run_or_when_it_is_told_to(one: Run) -> None:
    process = one.start(RLVR_PROBE_SIDECAR="0")
    wait_for(lambda: len(list(one.path.glob("p*.jsonl"))) == 1)
    by_hand = [sys.executable, "-m", "rlvr_probe.cli", "sidecar", "--gpu-hz", "0", str(one.out)]
    first = subprocess.Popen(by_hand, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: len(one.endings()) == 1, 60)
    first.send_signal(signal.SIGINT)
    out, _ = first.communicate(timeout=60)
    assert (first.returncode, out.splitlines()[-1]) == (130, "left one: interrupted")
    second = subprocess.Popen(by_hand, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: len(one.endings()) == 2, 60)
    one.end(process)
    out, _ = second.communicate(timeout=60)
    assert second.returncode == 0
    assert out.splitlines()[-1].endswith("no process of it writes any more on this node")
    assert one.endings() == ["exit", "signal"]


def test_the_launcher_counts_the_processes_of_the_command_alone(one: Run) -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "rlvr_probe.cli", "run", "--out", str(one.out)),
            *("--run-id", "one", "--", sys.executable, str(one.script())),
        ],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RLVR_PROBE_SIDECAR": "1"},
    )
    one.wait_for_journal(one.wait_for_sidecar())
    one.stop.touch()
    _, err = process.communicate(timeout=60)
    assert err.startswith("rlvr-probe: recorded 1 process in ")
    one.wait_for_its_end()


def test_no_row_is_lost_or_doubled_where_sidecars_are_killed_while_they_compress(one: Run) -> None:
    # Three processes, whose segments are hardly larger than what is compressed.
    process = one.start(
        """
        who = 0
        for child in (1, 2):
            if not os.fork():
                who = child
                break
        for i in range(4000):
            with rlvr_probe.span("work", i=3 * i + who):
                pass
            if i % 100 == 0:
                time.sleep(0.05)
        if who:
            rlvr_probe.detach()
            os._exit(0)
        os.wait()
        os.wait()
        """,
        RLVR_PROBE_SEGMENT_B="70000",
        RLVR_PROBE_OWN_SHARE="1",
        RLVR_PROBE_FREE_B="0",
    )
    packed: set[Path] = set()
    while process.poll() is None:
        pid = one.sidecar()
        wait_for(lambda: bool(set(one.path.glob("*.gz*")) - packed) or process.poll() == 0, 60)
        packed.update(one.path.glob("*.gz*"))
        kill(pid)
        if one.path.exists():
            trace = read_run(one.path)
            seen = [span.attributes["i"] for span in trace.user_spans]
            assert len(set(seen)) == len(seen)
            assert trace.lost == {}
    assert one.end(process) == ""
    one.wait_for_its_end()
    trace = read_run(one.path)
    assert {span.attributes["i"] for span in trace.user_spans} == set(range(12_000))
    assert len(trace.user_spans) == 12_000
    assert trace.lost == {}
