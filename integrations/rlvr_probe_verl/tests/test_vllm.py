"""A job of verl with its own servers of vLLM, whose engine is real and runs without a GPU."""

from __future__ import annotations

from collections import Counter

import pytest
from rlvr_probe_verl.tests.runs import PROMPTS, Finished, Runner, Scenario

from rlvr_probe.model.trace import Attempt

pytestmark = [pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(3000)]

SCENARIO = Scenario("0.9.1", how="launcher", vllm=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("verl-vllm")
    return Runner(folder).run(SCENARIO, folder / "job")


def lengths_of_the_servers(run: Finished) -> Counter[tuple[int, int]]:
    """Of every answer, as verl's server gave it to who asked."""
    return Counter((len(line["prompt"]), len(line["output"])) for line in run.truth.requests)


def attempt(run: Finished) -> Attempt:
    [found] = run.trace.attempts
    return found


def test_every_length_is_that_of_the_answer_that_the_server_gave(run: Finished) -> None:
    trained, validated = (
        [
            sample
            for step in run.trace.steps()
            for batch in getattr(step, kind)
            for group in batch.groups()
            for sample in group.trajectories
        ]
        for kind in ("batches", "evaluations")
    )
    assert len(trained) == SCENARIO.steps * PROMPTS * SCENARIO.group_size
    assert len(validated) == PROMPTS
    recorded = Counter((one.prompt_tokens, one.response_tokens) for one in trained + validated)
    assert recorded == lengths_of_the_servers(run)
    assert len({tokens for _, tokens in recorded}) > 2


def test_every_turn_has_its_request_with_its_times(run: Finished) -> None:
    requests = attempt(run).requests
    recorded = Counter((one.prompt_tokens, one.response_tokens) for one in requests)
    assert recorded == lengths_of_the_servers(run)
    assert attempt(run).unjoined_requests == 0
    for one in requests:
        assert None not in (one.queue_s, one.prefill_s, one.decode_s, one.cached_tokens)


def test_weights_go_to_the_engine_in_every_step(run: Finished) -> None:
    for step in run.trace.steps():
        assert "weight_sync" in {span.name for span in step.spans}


def test_nothing_is_lost_and_nothing_went_wrong(run: Finished) -> None:
    assert run.trace.lost == {}
    assert {tuple(process.faults) for process in run.trace.processes} == {()}
