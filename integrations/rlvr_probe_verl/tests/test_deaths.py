"""What is left of a job that lost a process: all but the last 0.2 s of that process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rlvr_probe_verl.tests.runs import DEATHS, Finished, Runner

from rlvr_probe.model.trace import Span
from tests.watched import planned, received

pytestmark = [pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(1500)]


def every_span(run: Finished) -> Iterator[Span]:
    for attempt in run.trace.attempts:
        for step in attempt.steps:
            yield from step.spans
    yield from run.trace.unplaced


def test_a_rank_that_ray_kills_loses_nothing_older(runner: Runner) -> None:
    run = runner.finished(DEATHS["rank"])
    [killed] = run.truth.killed
    generated = [line for line in run.truth.generations if line["rank"] == 0]
    assert len(generated) == 2
    assert generated[-1]["end"] < killed["end"]
    ranks = {process.index for process in run.trace.processes if process.pid == generated[0]["pid"]}
    calls = [
        span
        for span in every_span(run)
        if span.process in ranks
        and span.attributes.get("side") == "worker"
        and str(span.attributes.get("method")).endswith("generate_sequences")
    ]
    assert len(calls) == 2


def test_a_controller_that_is_killed_loses_nothing_older(runner: Runner) -> None:
    run = runner.finished(DEATHS["controller"])
    [killed] = run.truth.killed
    assert all(line["end"] < killed["end"] for line in run.truth.generations)
    [attempt] = run.trace.attempts
    assert [
        [sample.response_tokens for group in batch.groups() for sample in group.trajectories]
        for step in attempt.steps
        for batch in step.batches
    ] == [[len(output) for output in line["outputs"]] for line in run.truth.generations]
    assert [step.done for step in attempt.steps] == [True, False]


def test_of_a_killed_driver_all_that_was_recorded_is_told_and_no_process_of_it_is_left(
    runner: Runner,
) -> None:
    run = runner.finished(DEATHS["driver"])
    driver = next(process for process in run.trace.processes if process.role == "driver")
    assert driver.state == "died"
    assert run.trace.attempts[0].steps[0].done
    [sidecar] = run.trace.sidecars
    assert sidecar.state == "exited"
    assert received(run.folder).whole.keys() == planned(run.recording).keys()
    # Ray's own agents outlive a driver that started them and is killed, with or without a probe.
    left = {process["pid"]: process["titles"] for process in run.truth.processes if process["left"]}
    assert left.keys().isdisjoint(process.pid for process in run.trace.processes)
    assert not any("rlvr_probe.sidecar" in title for titles in left.values() for title in titles)


@pytest.mark.parametrize("job", DEATHS)
def test_a_job_that_fails_leaves_no_process_and_no_lost_row(runner: Runner, job: str) -> None:
    run = runner.finished(DEATHS[job])
    assert run.trace.lost == {}
    assert [dict(process.faults) for process in run.trace.processes if process.faults] == []
