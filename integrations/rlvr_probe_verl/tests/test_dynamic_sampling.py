"""The published recipe of dynamic sampling as a real job: what passed, and what was trained on."""

from __future__ import annotations

import json
from itertools import groupby

import pytest
from rlvr_probe_verl.tests.runs import DAPO, Finished, Runner

# It takes a minute on two cores.
pytestmark = [pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def job(runner: Runner) -> Finished:
    return runner.finished(DAPO)


def used_of(job: Finished) -> list[list[int]]:
    """Prompts of each batch that were trained on: those of a step that passed first."""
    found = list[list[int]]()
    for number, lines in groupby(job.truth.selected, key=lambda line: line["step"]):
        [left] = [line["prompts"] for line in job.truth.used if line["step"] == number]
        for line in lines:
            found.append(line["kept"][:left])
            left -= len(found[-1])
    return found


def test_what_passed_and_what_was_trained_on_is_recorded(job: Finished) -> None:
    assert (job.trace.lost, job.trace.notes) == ({}, [])
    steps = list(job.trace.steps())
    assert [step.complete for step in steps] == [True] * job.scenario.steps
    batches = [batch for step in steps for batch in step.batches]
    assert len(batches) > len(steps)  # one generation is not enough
    selected = job.truth.selected
    assert [batch.step for batch in batches] == [line["step"] for line in selected]
    assert [
        [group.trajectories[0].prompt_tokens for group in batch.groups()] for batch in batches
    ] == [line["inputs"] for line in selected]
    assert [sorted(batch.kept or ()) for batch in batches] == [line["kept"] for line in selected]
    assert [sorted(batch.used or ()) for batch in batches] == used_of(job)
    assert any(len(line["kept"]) < len(line["inputs"]) for line in selected)


def test_the_workload_has_the_filter(job: Finished) -> None:
    [path] = job.workload[1].rglob("dapo_filter_indices.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["kept_prompt_indices"] for line in lines] == [
        line["kept"] for line in job.truth.selected
    ]
    assert [line["used_prompt_indices"] for line in lines] == used_of(job)
