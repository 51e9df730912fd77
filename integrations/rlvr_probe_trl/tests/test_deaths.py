"""A rank that dies, and a reward that hangs, in a real TRL training."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_trl.tests.runs import LAUNCHER, TRAIN, Scenario, environment

from rlvr_probe.recording import find_run, read_run
from rlvr_probe.workload import build_workload

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(2000)]


def shown(folder: Path) -> tuple[dict[str, Any], str]:
    """What ``rlvr-probe show`` says of the recording, as JSON and as text."""
    command = [str(LAUNCHER), "show", str(folder / "recordings")]
    as_json = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    as_text = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(as_json.stdout), as_text.stdout


def test_what_a_killed_rank_had_finished_is_read_back(tmp_path: Path) -> None:
    scenario = Scenario(how="launcher", ranks=2)
    command = [str(LAUNCHER), "run", "--", sys.executable, "-m", "torch.distributed.run"]
    command += ["--standalone", "--nproc-per-node", "2", str(TRAIN), "--out", str(tmp_path / "b")]
    # The rank waits 0.5 s in its reward before it kills itself: all it did is older than 0.2 s.
    done = subprocess.run(
        [*command, "--steps", "6", "--kill-at", "3", "--kill-rank", "1"],
        cwd=tmp_path,
        env=environment(tmp_path, scenario),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 1, done.stderr[-2000:]  # torchrun's own, passed through
    trace = read_run(find_run(tmp_path / "recordings"))
    ranks = {process.rank: process for process in trace.processes}
    assert ranks[1].state == "died"
    [attempt] = trace.attempts
    assert [(step.number, step.complete) for step in attempt.steps] == [
        (1, True),
        (2, True),
        (3, False),
    ]
    # Rank 1 generated the third batch before it died, and was in its reward when it did.
    third = attempt.steps[2].batches[0]
    assert [len(shard.response_tokens) for shard in third.shards] == [8, 8]
    died_in = {span.name for span in trace.open_spans if span.process == ranks[1].index}
    assert died_in == {"step", "experience", "reward", "reward_fn"}
    summary, text = shown(tmp_path)
    assert (summary["steps"], summary["unfinished_steps"]) == (2, 1)
    assert summary["trajectories"] == 3 * 16
    assert "reward" in text
    workload = build_workload(trace)
    assert [batch.batch.step for batch in workload.batches] == [1, 2]
    assert [(left.step, left.reason, left.count) for left in workload.left_out] == [
        (3, "incomplete", 16)
    ]


@pytest.mark.full
def test_a_reward_that_holds_the_interpreter_lock_is_shown_as_open(tmp_path: Path) -> None:
    command = [sys.executable, str(TRAIN), "--out", str(tmp_path / "b"), "--attach", "before"]
    process = subprocess.Popen(
        [*command, "--block-at", "2", "--block-s", "200"],
        cwd=tmp_path,
        env=environment(tmp_path, Scenario()),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "blocking in step 2" in line:
                break
        time.sleep(1.0)
        meanwhile, text = shown(tmp_path)
    finally:
        process.kill()
        process.communicate()
    afterwards, _ = shown(tmp_path)
    for summary, state in ((meanwhile, "running"), (afterwards, "died")):
        assert [row["state"] for row in summary["process_list"]] == [state]
        spans = {span["name"]: span for span in summary["open_span_list"]}
        assert set(spans) == {"step", "experience", "reward", "reward_fn"}
        assert spans["reward_fn"]["detail"] == "keeper"
        assert spans["step"]["step"] == 2
        assert summary["open_spans"] == 4
    ages = [span["age_s"] for span in meanwhile["open_span_list"] if span["name"] == "reward_fn"]
    assert 0.9 < ages[0] < 200
    assert "keeper" in text
