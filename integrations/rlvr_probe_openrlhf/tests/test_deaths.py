"""What is left of a job that lost a process: all but the last 0.2 s of that process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from rlvr_probe_openrlhf.tests.runs import DEATH, GROUP, PROMPTS, Finished, Runner

from rlvr_probe.model.trace import Span

# Jobs wait for one another, and one takes a minute or two on two cores.
pytestmark = [pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def run(runner: Runner) -> Finished:
    return runner.finished(DEATH)


def every_span(run: Finished) -> Iterator[Span]:
    for attempt in run.trace.attempts:
        for step in attempt.steps:
            yield from step.spans
    yield from run.trace.unplaced


def test_a_rank_that_is_killed_loses_nothing_older(run: Finished) -> None:
    [killed] = [process for process in run.trace.processes if process.role == "PolicyModelActor"]
    assert killed.state == "died"
    done = [
        str(span.attributes["method"])
        for span in every_span(run)
        if span.process == killed.index and span.attributes.get("side") == "worker"
    ]
    # All of the first step; in the second one it was killed before its first call returned.
    assert sorted(done) == ["append", "broadcast_to_vllm", "fit", "forward"]


def test_every_length_of_the_step_in_which_it_was_killed_is_there(run: Finished) -> None:
    [attempt] = run.trace.attempts
    assert [step.done for step in attempt.steps] == [True, False]
    recorded = Counter(
        (sample.prompt_tokens, sample.response_tokens)
        for step in attempt.steps
        for batch in (*step.batches, *step.evaluations)
        for group in batch.groups()
        for sample in group.trajectories
    )
    assert recorded.total() == 2 * PROMPTS * GROUP
    assert recorded == Counter(
        (len(line["prompt"]), len(line["output"])) for line in run.truth.requests
    )


def test_a_job_that_fails_leaves_no_lost_row(run: Finished) -> None:
    assert run.trace.lost == {}
    assert [dict(process.faults) for process in run.trace.processes if process.faults] == []
