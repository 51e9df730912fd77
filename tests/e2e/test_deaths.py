"""Every way a process ends or a disk fails: training goes on, loss is bounded and reported.

Real processes record a toy trainer; what they did is counted by a log of their own, written without
a buffer, never by the probe.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlvr_probe.model.trace import Trace
from rlvr_probe.trace import find_run, read_run
from tests import toy

FLUSH_BOUND_NS = 200_000_000
"""Of what was finished longer before a kill than this, nothing is lost."""

PREAMBLE = """
import os, sys, time, signal
sys.path.insert(0, {site!r})
import rlvr_probe
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
        out, err = process.communicate(timeout=60)
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


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_loses_at_most_its_last_fifth_of_a_second(
    job: Job, number: signal.Signals
) -> None:
    process = job.start("""
        i = 0
        while True:
            with rlvr_probe.span("work", i=i):
                time.sleep(0.0005)
            done(i)
            i += 1
    """)
    wait_for(lambda: len(job.finished()) > 1_000)
    killed = time.monotonic_ns()
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == -number
    recorded = job.recorded()
    due = {i for i, at in job.finished() if at < killed - FLUSH_BOUND_NS}
    assert len(due) > 200
    assert due <= recorded
    assert job.trace().processes[0].state == "died"


@pytest.mark.parametrize(
    ("end", "code", "state"),
    [
        ("os._exit(3)", 3, "died"),
        ("sys.exit(4)", 4, "exited"),
        ("raise ValueError('CANARY')", 1, "exited"),
        ("import threading; threading.Thread(target=time.sleep, args=(0.5,)).start()", 0, "exited"),
    ],
)
def test_an_end_without_a_signal(job: Job, end: str, code: int, state: str) -> None:
    result = job.run(f"busy(300)\ntime.sleep(0.25)\nbusy(300, 'more')\n{end}\n")
    assert result.returncode == code
    labels = [span.attributes["label"] for span in job.trace().user_spans]
    assert labels.count("work") == 300
    assert labels.count("more") == (300 if state == "exited" else labels.count("more"))
    assert job.trace().processes[0].state == state
    assert "CANARY" not in "".join(path.read_text(errors="replace") for path in job.out.rglob("p*"))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_multiprocessing_child_is_recorded_to_its_last_event(job: Job, method: str) -> None:
    result = job.run(f"""
        import multiprocessing
        def child():
            busy(50, "child")
        if __name__ == "__main__":
            with rlvr_probe.span("parent", i=0):
                process = multiprocessing.get_context({method!r}).Process(target=child)
                process.start()
                process.join()
            print(process.exitcode)
    """)
    assert result.stdout.split() == ["0"], result.stderr
    trace = job.trace()
    labels = [span.attributes["label"] for span in trace.user_spans]
    assert (labels.count("child"), labels.count("parent")) == (50, 1)
    parent, child = sorted(trace.processes, key=lambda process: process.owner is not None)
    assert child.owner == parent.key
    assert [process.state for process in trace.processes] == ["exited", "exited"]


def test_a_bare_fork_and_the_parent_never_share_a_file(job: Job) -> None:
    result = job.run("""
        busy(20, "before")
        pid = os.fork()
        busy(20, "child" if pid == 0 else "parent")
        if pid == 0:
            time.sleep(0.3)
            os._exit(0)
        os.waitpid(pid, 0)
    """)
    assert result.returncode == 0, result.stderr
    labels = [span.attributes["label"] for span in job.trace().user_spans]
    assert [labels.count(label) for label in ("before", "child", "parent")] == [20, 20, 20]


def test_a_reward_that_holds_the_interpreter_lock_is_listed_as_open_meanwhile_and_after_the_kill(
    job: Job,
) -> None:
    process = job.start("""
        import ctypes
        sleep = ctypes.PyDLL(None).sleep  # PyDLL keeps the interpreter lock
        def reward(rows):
            if trainer.step == 2:
                time.sleep(0.3)
                done(-1)
                sleep(30)
            return [1.0] * len(rows)
        trainer = toyrl.Trainer(reward, steps=3)
        trainer.train()
    """)
    try:
        wait_for(lambda: any(i == -1 for i, _ in job.finished()))
        time.sleep(0.5)
        trace = job.trace()
        assert trace.processes[0].state == "running"
        assert {(span.name, span.step) for span in trace.open_spans} == {
            ("step", 2),
            ("reward_fn", None),
        }
        assert all(span.age_s is not None and 0.3 < span.age_s < 10 for span in trace.open_spans)
    finally:
        process.kill()
        process.communicate()
    trace = job.trace()
    assert trace.processes[0].state == "died"
    assert {span.name for span in trace.open_spans} == {"step", "reward_fn"}
    assert [step.number for attempt in trace.attempts for step in attempt.steps] == [1, 2]


def test_a_deleted_recording_is_noticed_and_begun_anew(job: Job) -> None:
    process = job.start("""
        busy(100, "first")
        time.sleep(0.4)
        done(-1)
        while not os.path.exists("go"):
            time.sleep(0.01)
        time.sleep(0.1)
        busy(100, "second")
    """)
    wait_for(lambda: any(i == -1 for i, _ in job.finished()))
    shutil.rmtree(job.out)
    (job.folder / "go").touch()
    process.communicate(timeout=30)
    assert process.returncode == 0
    trace = job.trace()
    labels = [span.attributes["label"] for span in trace.user_spans]
    assert labels.count("second") >= 99
    assert trace.lost.get("deleted") == 100


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount small file systems of their own; needs the right to."""
    libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
    mounted: list[Path] = []

    def mount(options: str) -> Path:
        path = tmp_path / f"disk{len(mounted)}"
        path.mkdir()
        read_only = 1 if options == "ro" else 0
        data = b"" if read_only else options.encode()
        if libc.mount(b"none", bytes(path), b"tmpfs", read_only, data):
            pytest.skip(f"mounting a tmpfs is not permitted here (errno {ctypes.get_errno()})")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        libc.umount2(bytes(path), 2)


def test_a_full_disk_costs_rows_that_are_counted_and_nothing_else(
    job: Job, tmpfs: Callable[[str], Path]
) -> None:
    job.out = tmpfs("size=512k") / "runs"
    result = job.run("""
        busy(20_000)
        time.sleep(0.3)
        os.unlink(os.path.join(os.path.dirname(rlvr_probe.attach().folder.parent), "ballast"))
        time.sleep(0.3)
        busy(50, "after")
        trainer = toyrl.Trainer(lambda rows: [1.0])
        print(len(trainer.train()))
    """ if _ballast(job.out.parent) else "")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["3"]
    trace = job.trace()
    labels = [span.attributes["label"] for span in trace.user_spans]
    assert labels.count("after") == 50
    missing = 20_000 - labels.count("work")
    assert missing > 0
    lost = trace.lost.get("disk_full", 0) + trace.lost.get("low_space", 0)
    assert lost >= missing
    assert sum(step.complete for attempt in trace.attempts for step in attempt.steps) == 3


def _ballast(disk: Path) -> bool:
    (disk / "ballast").write_bytes(bytes(128 * 1024))
    return True


def test_a_read_only_folder_costs_the_recording_only(
    job: Job, tmpfs: Callable[[str], Path]
) -> None:
    job.out = tmpfs("ro") / "runs"
    result = job.run("""
        trainer = toyrl.Trainer(lambda rows: [1.0])
        print(len(trainer.train()))
        time.sleep(0.3)
        print(rlvr_probe.attach().refused)
    """)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["3", "erofs"]


def test_two_jobs_at_once_are_two_runs(job: Job, tmp_path: Path) -> None:
    other = Job(tmp_path / "other")
    other.out = job.out
    body = "import uuid; me = uuid.uuid4().hex\nfor _ in range(20):\n    busy(10, me)\n"
    for process in [job.start(body), other.start(body)]:
        process.communicate(timeout=60)
    runs = [path for path in job.out.iterdir() if path.is_dir()]
    assert len(runs) == 2
    for run in runs:
        trace = read_run(run)
        assert len(trace.processes) == 1
        assert len({span.attributes["label"] for span in trace.user_spans}) == 1


def test_a_process_without_home_or_a_writable_working_folder_runs_as_before(job: Job) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "HOME"}
    result = job.run("print(len(toyrl.Trainer(lambda rows: [1.0]).train()))", env=environ)
    assert (result.returncode, result.stdout.split()) == (0, ["3"]), result.stderr
