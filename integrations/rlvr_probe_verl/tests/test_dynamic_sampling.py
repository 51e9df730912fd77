"""The published recipe of dynamic sampling as real jobs: what passed, and what was trained on."""

from __future__ import annotations

import json
from itertools import groupby

import pytest
from rlvr_probe_verl.tests.runs import DAPO, PROMPTS, Finished, Runner

from tests.planted import characterized

# Each takes a minute on two cores.
pytestmark = [pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module", params=DAPO)
def dynamic(runner: Runner, request: pytest.FixtureRequest) -> Finished:
    return runner.finished(DAPO[request.param])


def used_of(dynamic: Finished) -> list[list[int]]:
    """Prompts of each batch that were trained on: those of a step that passed first."""
    result = list[list[int]]()
    for number, lines in groupby(dynamic.truth.selected, key=lambda line: line["step"]):
        [left] = [line["prompts"] for line in dynamic.truth.used if line["step"] == number]
        for line in lines:
            result.append(line["kept"][:left])
            left -= len(result[-1])
    return result


def test_what_passed_and_what_was_trained_on_is_recorded(dynamic: Finished) -> None:
    assert (dynamic.trace.lost, dynamic.trace.notes) == ({}, [])
    steps = list(dynamic.trace.steps())
    assert [step.complete for step in steps] == [True] * dynamic.scenario.steps
    batches = [batch for step in steps for batch in step.batches]
    assert len(batches) > len(steps)  # one generation is not enough
    selected = dynamic.truth.selected
    assert [batch.step for batch in batches] == [line["step"] for line in selected]
    assert [
        [group.trajectories[0].prompt_tokens for group in batch.groups()] for batch in batches
    ] == [line["inputs"] for line in selected]
    rows = [
        [trajectory for group in batch.groups() for trajectory in group.trajectories]
        for batch in batches
    ]
    assert [[trajectory.response_tokens for trajectory in batch] for batch in rows] == [
        line["responses"] for line in selected
    ]
    assert [
        [reward.value for trajectory in batch for reward in trajectory.rewards] for batch in rows
    ] == [pytest.approx(line["rewards"]) for line in selected]
    assert [sorted(batch.kept or ()) for batch in batches] == [line["kept"] for line in selected]
    assert [sorted(batch.used or ()) for batch in batches] == used_of(dynamic)
    assert any(len(line["kept"]) < len(line["inputs"]) for line in selected)


def test_the_evaluation_that_comes_behind_the_last_step_is_recorded(dynamic: Finished) -> None:
    *before, last = dynamic.trace.steps()
    assert [step.evaluations for step in before] == [[]] * len(before)
    [batch] = last.evaluations
    assert len(list(batch.groups())) == PROMPTS
    assert last.stage_seconds("eval")


def test_as_many_gpus_are_characterized_as_ray_gave(dynamic: Finished) -> None:
    ledger = characterized(dynamic.recording).ledger
    assert ledger is not None
    assert [line["taken"] for line in dynamic.truth.gpus] == [len(ledger.gpus)]
    assert len(ledger.gpus) == dynamic.scenario.ranks


def test_the_workload_has_the_filter(dynamic: Finished) -> None:
    [path] = dynamic.workload[1].rglob("dapo_filter_indices.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["kept_prompt_indices"] for line in lines] == [
        line["kept"] for line in dynamic.truth.selected
    ]
    assert [line["used_prompt_indices"] for line in lines] == used_of(dynamic)
