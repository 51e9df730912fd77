"""Trainings with a real engine of vLLM, without a GPU: beside the trainer, and in a server."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from rlvr_probe_trl.tests.releases import RELEASES, folders
from rlvr_probe_trl.tests.runs import Scenario, run_command
from rlvr_probe_trl.tests.truth import Truth, read_truth

from rlvr_probe.model.trace import Attempt, Trace
from rlvr_probe.recording import find_run, read_run
from tests import vllm_cpu

pytestmark = [pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(2700)]

SCRIPT = Path(__file__).with_name("train_vllm.py")
TRL = list(RELEASES)[-1]
GROUP = 4


@dataclass(frozen=True)
class Run:
    """One training; ``served`` is the recording of its server, or of itself if it has none."""

    mode: str
    truth: Truth
    trace: Trace
    served: Trace

    @property
    def requests(self) -> Attempt:
        """Where its requests are."""
        [attempt] = self.served.attempts
        return attempt


@pytest.fixture(scope="module", params=["colocate", "server"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder, mode = tmp_path_factory.mktemp("vllm"), str(request.param)
    train(folder, mode, "--attach", "before")
    trace = read_run(find_run(folder / "recordings"))
    served = read_run(find_run(folder / "server")) if mode == "server" else trace
    return Run(mode, read_truth(folder / "books", GROUP), trace, served)


def train(folder: Path, *arguments: str, exit_status: int = 0) -> str:
    """What a training printed that keeps its books in ``folder/books``."""
    python = vllm_cpu.python(f"trl-{TRL}", [*folders(TRL), vllm_cpu.named_vllm()])
    command = [str(python), str(SCRIPT), *arguments, "--out", str(folder / "books")]
    given = vllm_cpu.VARIABLES
    return run_command(command, folder, Scenario(), exit_status=exit_status, more=given)


def test_lengths_are_those_that_the_trainer_got(run: Run) -> None:
    recorded = [
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
        for step in run.trace.steps()
        for batch in step.batches
    ]
    assert len(recorded) == 3
    assert recorded == run.truth.batches


def test_every_sample_is_a_request_of_its_lengths(run: Run) -> None:
    asked = Counter(
        (group["input"], tokens)
        for _, groups in run.truth.batches
        for group in groups
        for tokens in group["output"]
    )
    requests = run.requests.requests
    assert (
        Counter((request.prompt_tokens, request.response_tokens) for request in requests) == asked
    )
    assert {request.finish for request in requests} <= {"stop", "length"}
    for request in requests:
        assert None not in (
            request.queue_s,
            request.prefill_s,
            request.decode_s,
            request.cached_tokens,
        )


def test_a_turn_is_a_call_for_many_samples_and_has_no_request_of_its_own(run: Run) -> None:
    assert run.requests.unjoined_requests == len(run.requests.requests)


def test_the_engine_is_named_and_weights_go_to_it_in_every_step(run: Run) -> None:
    [session] = run.trace.attempts[0].sessions
    assert session.facts["engine"] == f"vllm-{run.mode}"
    assert session.facts["framework_version"] == TRL
    for step in run.trace.steps():
        assert step.complete
        assert "weight_sync" in {span.name for span in step.spans}


def test_nothing_is_lost_and_nothing_went_wrong(run: Run) -> None:
    for trace in (run.trace, run.served):
        assert trace.lost == {}
        assert {tuple(process.faults) for process in trace.processes} == {()}


@pytest.mark.parametrize(
    ("mode", "refusal"),
    [
        pytest.param(
            "colocate",
            "AttributeError: 'Parameter' object has no attribute 'weight_loader'",
            marks=pytest.mark.skipif(
                torch.backends.cpu.get_cpu_capability() != "AVX512",
                reason="vLLM packs weights in bfloat16 with AVX-512, and else keeps them",
            ),
        ),
        ("server", "NCCL weight-transfer engine, which needs a CUDA device, got 'cpu'"),
    ],
)
def test_a_cpu_alone_takes_no_new_weights(tmp_path: Path, mode: str, refusal: str) -> None:
    """As the page of the integration says: that alone is stood in above."""
    assert refusal in train(tmp_path, mode, "--cpu-alone", exit_status=1)
