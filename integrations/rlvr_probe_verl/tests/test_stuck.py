"""A real job of verl that hangs: who, in what, for how long; live, and once all of it is dead.

And what is left of it then: all but the last moments, though every process of it got SIGKILL.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_verl.tests.runs import Finished, Runner, Scenario

from tests.hanging import Hung, hung

# Another job may run, and one takes a minute or two on two cores.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3000)]

HANGS = Scenario(
    "0.5.0",
    ranks=2,
    steps=20,
    overrides=("trainer.test_freq=-1",),
    environment=("VERL_CPU_MISCHIEF=hang_rank_1@8",),
)


@dataclass(frozen=True)
class Killed:
    """What was said of a job while it hung, and once it was killed.

    Attributes:
        pid: Of the process that hung.
        live: What was found while it did.
        dead: What was found afterwards.
        left: What the job left behind.
    """

    pid: int
    live: list[dict[str, Any]]
    dead: list[dict[str, Any]]
    left: Finished


@contextmanager
def job(runner: Runner, scenario: Scenario, folder: Path) -> Iterator[Hung]:
    """A job until it is killed, from when one of its processes hangs."""
    ray = Path(tempfile.mkdtemp(prefix="rv", dir="/tmp"))
    try:
        command, environment = runner.prepared(scenario, folder, ray)
        with hung(command, folder, environment, seconds=scenario.timeout_s) as result:
            yield result
    finally:
        shutil.rmtree(ray, ignore_errors=True)


@pytest.fixture(scope="module")
def killed(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    folder = tmp_path_factory.mktemp("hangs")
    with job(runner, HANGS, folder) as hanging:
        live, dead = hanging.found(), hanging.found_dead()
        return Killed(hanging.pid, live, dead, Finished(HANGS, folder))


def test_a_worker_that_hangs_comes_before_the_controller_that_waits(killed: Killed) -> None:
    first, waiting, *_ = killed.live
    assert (first["pid"], first["rank"]) == (killed.pid, 1)
    assert (first["span"], first["detail"]) == ("rpc", "compute_log_prob")
    assert first["stack"][0]["function"] == "never_comes_back"
    assert (waiting["role"], waiting["detail"]) == ("TaskRunner", "compute_log_prob")
    assert waiting["inside"] == ["old_logprob", "step"]
    assert waiting["step"] == 9


def test_so_it_does_once_the_job_is_dead(killed: Killed) -> None:
    dead, waited, *_ = killed.dead
    assert (dead["pid"], dead["detail"]) == (killed.pid, "compute_log_prob")
    assert (waited["role"], waited["step"]) == ("TaskRunner", 9)


def test_of_the_killed_job_every_length_is_there_row_by_row(killed: Killed) -> None:
    run = killed.left
    [attempt] = run.trace.attempts
    assert [step.done for step in attempt.steps] == [True] * 8 + [False]
    recorded = [
        [
            (sample.prompt_tokens, sample.response_tokens)
            for sample in sorted(
                (sample for group in batch.groups() for sample in group.trajectories),
                key=lambda sample: sample.row,
            )
        ]
        for step in attempt.steps
        for batch in step.batches
    ]
    ranks = [[line for line in run.truth.generations if line["rank"] == rank] for rank in (0, 1)]
    assert recorded == [
        [
            (prompt, len(output))
            for line in parts
            for prompt, output in zip(line["prompts"], line["outputs"], strict=True)
        ]
        for parts in zip(*ranks, strict=True)
    ]
    assert len(recorded) == 9
