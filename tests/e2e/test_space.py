"""A disk that fills up, and a budget that several processes share.

Real processes on a small file system of their own. What they made is counted by a log of theirs,
what is in their journals line by line: every row is in one of them, or was counted as lost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr_probe.cli import main
from tests.jobs import Job, wait_for

MIB = 1 << 20

ENVIRON = {**os.environ, "RLVR_PROBE_RUN_ID": "run"}
del ENVIRON["RLVR_PROBE_FREE_B"]  # these are the tests of it

MAKE = """
from rlvr_probe.adapter import HookPoint
from rlvr_probe.probe.hooks import Hook, wrap
from rlvr_probe.model import names

def recorded(name, attributes, values):
    point = HookPoint(name.name, name, attributes, read=lambda call: values)
    return wrap(lambda: None, Hook(point))

turn = recorded(names.TURN, ("samples", "prompt_tokens", "response_tokens"), (8, 1_000, 2_000))
stage = recorded(names.ROLLOUT, ("session", "step", "mode"), (0, 1, "train"))
made = {"turn": 0, "rollout": 0, "trajectories": 0}

def lengths():
    hooks_probe().emit(names.TRAJECTORIES, {
        "step": made["trajectories"] + 1, "offset": 0, "total": 500, "group_size": 500,
        "prompt_tokens": [100] * 500, "response_tokens": [200] * 500})

def hooks_probe():
    from rlvr_probe.probe.hooks import calls
    return calls._probe

def steps(count, turns=500, samples=False):
    for _ in range(count):
        for _ in range(turns):
            turn()
        made["turn"] += turns
        stage()
        made["rollout"] += 1
        if samples:
            lengths()
            made["trajectories"] += 1
        time.sleep(0.002)

def wait(name):
    time.sleep(1.5)  # the books are looked at once per second
    open(name + ".reached", "w").close()
    while not os.path.exists(name):
        time.sleep(0.02)

def report():
    import json
    with open(f"made-{os.getpid()}.json", "w") as file:
        json.dump(made, file)
"""


def rows_in(folder: Path) -> Counter[str]:
    """Data rows by name of every journal in ``folder``, read line by line."""
    found = Counter[str]()
    for path in folder.glob("*.jsonl"):
        defined = dict[int, str]()
        for line in path.read_bytes().splitlines()[1:]:
            row = json.loads(line)
            if row[0] == "def":
                defined[row[1]] = row[3]
            elif isinstance(row[0], int):
                found[defined[row[0]]] += 1
    return found


def made_by(job: Job) -> Counter[str]:
    total = Counter[str]()
    for path in job.folder.glob("made-*.json"):
        total.update(json.loads(path.read_text()))
    return total


def levels(folder: Path) -> list[list[str]]:
    bodies = (path.read_bytes().splitlines()[1:] for path in folder.glob("*.jsonl"))
    found = [json.loads(line) for body in bodies for line in body]
    return [row[2:] for row in found if row[0] == "level"]


def free_b(path: Path) -> int:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


@pytest.mark.conformance
def test_turns_leave_the_last_tenth_of_a_disk_to_the_user_and_stages_are_all_recorded(
    job: Job, tmpfs: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    disk = tmpfs("size=8m")
    job.out = disk / "runs"
    (disk / "dataset").write_bytes(bytes(int(5.5 * MIB)))  # the user's, deleted later
    process = job.start(
        MAKE
        + """
steps(100)
wait("alone")
steps(50)
wait("beside")
steps(50)
report()
""",
        env=ENVIRON,
    )
    try:
        wait_for(lambda: (job.folder / "alone.reached").exists(), 200)
        # More than 3 MB were to be written, and 2.5 MB were free. The user can have the last tenth.
        left = free_b(disk)
        assert 0.7 * MIB < left < 1.3 * MIB
        whole = left - 64 * 1024
        (disk / "checkpoint").write_bytes(bytes(whole))
        assert (disk / "checkpoint").stat().st_size == whole
        before = rows_in(job.out / "run")
        (job.folder / "alone").touch()
        wait_for(lambda: (job.folder / "beside.reached").exists(), 200)
        between = rows_in(job.out / "run") - before
        assert between == {"rollout": 50}
        (disk / "checkpoint").unlink()
        (disk / "dataset").unlink()
        (job.folder / "beside").touch()
        _, errors = process.communicate(timeout=200)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, errors
    made, found = made_by(job), rows_in(job.out / "run")
    assert made == {"turn": 100_000, "rollout": 200, "trajectories": 0}
    assert found["rollout"] == 200
    assert found["turn"] > before["turn"]  # there was room again
    lost = job.trace().lost
    assert lost["low_space"] > 0
    assert found.total() + sum(lost.values()) == made.total()
    recorded = [level for level, _ in levels(job.out / "run")]
    assert (recorded[0], recorded[-1]) == ("stages", "full")
    main(["show", str(job.out / "run")])
    assert "low_space" in capsys.readouterr().out


@pytest.mark.parametrize("share", [0.1, 0.7])
def test_a_disk_that_was_full_before_keeps_turns_off_from_the_start(
    job: Job, tmpfs: Callable[[str], Path], share: float
) -> None:
    disk = tmpfs("size=8m")
    job.out = disk / "runs"
    (disk / "data").write_bytes(bytes(8 * MIB - int(share * 0.8 * MIB)))
    body = MAKE + "steps(20, samples=True)\ntime.sleep(1.5)\nreport()\n"
    result = job.run(body, env=ENVIRON)
    assert result.returncode == 0, result.stderr
    [folder] = (path for path in job.out.iterdir() if path.is_dir())
    found, lost = rows_in(folder), job.trace().lost
    assert found["turn"] == 0
    assert found["rollout"] == 20
    assert found["trajectories"] == (20 if share > 0.6 else 0)
    assert found.total() + sum(lost.values()) == made_by(job).total()
    assert list(folder.glob("*.open"))  # a hang can be told even there


def test_the_processes_of_a_node_share_a_budget_and_stages_go_on(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = MIB
    environ = {**ENVIRON, "RLVR_PROBE_BUDGET_B": str(budget), "RLVR_PROBE_FREE_B": "0"}
    body = MAKE + "steps(40, samples=True)\ntime.sleep(1.5)\nreport()\n"
    started = [job.start(body, env=environ)]
    for _ in range(2):
        script = str(job.folder / "job.py")
        started.append(
            subprocess.Popen(
                [sys.executable, script],
                cwd=job.folder,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    for process in started:
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors
    folder = job.out / "run"
    made, found, trace = made_by(job), rows_in(folder), job.trace()
    assert made == {"turn": 60_000, "rollout": 120, "trajectories": 120}
    assert found["rollout"] == 120
    assert found.total() + sum(trace.lost.values()) == made.total()
    assert trace.lost["budget"] > 0
    size = sum(path.stat().st_size for path in folder.iterdir())
    # Each may write a little before it looks again; stages are a few dozen kilobytes here.
    assert 0.8 * budget < size < budget + 3 * 0.15 * MIB + 120 * 200
    assert {process.level for process in trace.processes} <= {"stages", "spans"}
    main(["show", str(folder)])
    shown = " ".join(capsys.readouterr().out.split())
    assert "REDUCED to" in shown
    assert "budget 1 MiB" in shown
