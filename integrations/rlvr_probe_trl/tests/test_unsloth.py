"""A trainer whose source was executed anew after the probe attached is recorded like TRL's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_trl.tests.runs import run_script
from rlvr_probe_trl.tests.truth import Truth, read_truth

from rlvr_probe.model.names import STAGES
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(2000)]

SCRIPT = Path(__file__).with_name("train_unsloth.py")
GROUP = 4


@dataclass(frozen=True)
class Run:
    """One training and what it left behind."""

    folder: Path
    truth: Truth
    result: Any
    output: str

    def trace(self) -> Trace:
        """What was recorded."""
        [recording] = [path for path in (self.folder / "recordings").iterdir() if path.is_dir()]
        return read_run(recording)


def train(folder: Path, attach: str) -> Run:
    folder.mkdir()
    arguments = f"--attach {attach} --steps 3 --eval-every 2 --async-reward --beta 0.1"
    output = run_script(SCRIPT, folder, arguments)
    result = json.loads((folder / "books" / "result-0.json").read_text())
    return Run(folder, read_truth(folder / "books", GROUP), result, output)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("unsloth") / "recorded", "before")


def test_every_batch_is_recorded_exactly_and_nothing_twice(run: Run) -> None:
    trace = run.trace()
    for kind, truth in (("batches", run.truth.batches), ("evaluations", run.truth.evaluations)):
        recorded = [batch for step in trace.steps() for batch in getattr(step, kind)]
        assert truth
        assert [
            (
                batch.step,
                [
                    {
                        "input": group.trajectories[0].prompt_tokens,
                        "output": [trajectory.response_tokens for trajectory in group.trajectories],
                    }
                    for group in batch.groups()
                ],
            )
            for batch in recorded
        ] == truth
    assert trace.lost == {}
    assert [dict(process.faults) for process in trace.processes] == [{}]


def test_every_stage_of_every_step_is_there(run: Run) -> None:
    expected = {"data", "rollout", "reward", "advantage", "update_actor", "ref_logprob"}
    for step in run.trace().steps():
        assert expected <= {span.name for span in step.spans if span.name in STAGES}
        assert step.complete
        assert [span.name for span in step.spans].count("rollout") == 1 + len(step.evaluations)


def test_the_algorithm_is_that_of_the_source(run: Run) -> None:
    [session] = run.trace().attempts[0].sessions
    assert session.facts["algorithm"] == "grpo"
    assert session.facts["reward_functions"] == ["keeper", "sometimes", "later"]


def test_the_trainer_was_not_trls_own(run: Run) -> None:
    assert "built UnslothGRPOTrainer UnslothGRPOTrainer\n" in run.output


@pytest.mark.full
def test_it_trains_as_without_a_probe(run: Run, tmp_path: Path) -> None:
    assert run.result == train(tmp_path / "bare", "no").result
