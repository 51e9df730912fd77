"""Every way a process ends or a disk fails: training goes on, loss is bounded and reported.

Real processes record a toy trainer; what they did is counted by a log of their own, written without
a buffer, never by the probe.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from rlvr_probe.recording import read_run
from tests import today
from tests.jobs import Job, wait_for

FLUSH_BOUND_NS = 200_000_000
"""Of what was finished longer before a kill than this, nothing is lost, if threads get to run."""
BEAT_NS = 100_000_000
"""How often the flush thread wants to run."""


@pytest.mark.parametrize("number", today.some([signal.SIGKILL, signal.SIGTERM], 1))
def test_a_killed_process_loses_at_most_its_last_fifth_of_a_second(
    job: Job, number: signal.Signals
) -> None:
    process = job.start("""
        import threading
        def beat():
            while True:
                time.sleep(0.1)
                done(-1)
        threading.Thread(target=beat, daemon=True).start()
        i = 0
        while True:
            with rlvr_probe.span("work", i=i):
                time.sleep(0.0005)
            done(i)
            i += 1
    """)
    wait_for(lambda: len(job.finished()) > 4_000, 100)
    killed = time.monotonic_ns()
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == -number
    recorded = job.recorded()
    # A thread of the job that does nothing tells how late a busy machine lets threads run.
    beats = [*(at for i, at in job.finished() if i < 0), killed]
    late = max(after - at for at, after in pairwise(beats)) - BEAT_NS
    due = {i for i, at in job.finished() if i >= 0 and at < killed - FLUSH_BOUND_NS - max(0, late)}
    assert len(due) > 200
    assert due <= recorded
    assert job.trace().processes[0].state == "died"


@pytest.mark.parametrize(
    ("end", "code", "state"),
    today.some(
        [
            ("os._exit(3)", 3, "died"),
            ("sys.exit(4)", 4, "exited"),
            ("raise ValueError('CANARY')", 1, "exited"),
            (
                "import threading; threading.Thread(target=time.sleep, args=(0.5,)).start()",
                0,
                "exited",
            ),
        ],
        1,
    ),
)
def test_an_end_without_a_signal(job: Job, end: str, code: int, state: str) -> None:
    result = job.run(f"busy(300)\ntime.sleep(1)\nbusy(300, 'more')\n{end}\n")
    assert result.returncode == code
    labels = [span.attributes["label"] for span in job.trace().user_spans]
    assert labels.count("work") == 300
    assert labels.count("more") == (300 if state == "exited" else labels.count("more"))
    assert job.trace().processes[0].state == state
    assert "CANARY" not in "".join(path.read_text(errors="replace") for path in job.out.rglob("p*"))


@pytest.mark.parametrize("method", today.some(["fork", "spawn"], 1))
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
            time.sleep(1)
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
                time.sleep(1)
                done(-1)
                sleep(100)
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
        assert all(span.age_s is not None and 0.3 < span.age_s < 100 for span in trace.open_spans)
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
    process.communicate(timeout=60)
    assert process.returncode == 0
    trace = job.trace()
    labels = [span.attributes["label"] for span in trace.user_spans]
    second = labels.count("second")
    assert second >= 99
    assert trace.lost.get("deleted") == 200 - second


def test_a_table_of_open_spans_that_somebody_emptied_does_not_end_the_process(job: Job) -> None:
    # The sidecar has a table of its own, which comes at some moment.
    alone = os.environ | {"RLVR_PROBE_SIDECAR": "0"}
    body = """
        busy(5)
        [table] = rlvr_probe.attach().folder.glob("*.open")
        os.truncate(table, 0)
        # It is as long as before a moment before it is used again; a beat is what shows that.
        while not any(table.read_bytes()[:8]):
            time.sleep(0.01)
        with rlvr_probe.span("open", i=-1):
            time.sleep(1)
            busy(5)
            os._exit(0)
    """
    result = job.run(body, env=alone)
    assert result.returncode == 0, result.stderr
    trace = job.trace()
    assert [span.detail for span in trace.open_spans] == ["open"]
    assert trace.processes[0].faults == {}


def test_a_full_disk_costs_rows_that_are_counted_and_nothing_else(
    job: Job, tmpfs: Callable[[str], Path]
) -> None:
    job.out = tmpfs("size=512k") / "runs"
    result = job.run("""
        busy(20_000)
        time.sleep(1)
        os.unlink(os.path.join(os.path.dirname(rlvr_probe.attach().folder.parent), "ballast"))
        time.sleep(1)
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
