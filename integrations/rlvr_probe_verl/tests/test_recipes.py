"""Published recipes as real jobs: what they generated, selected, scored and timed."""

from __future__ import annotations

import pytest
from rlvr_probe_verl.tests.runs import PROMPTS, RECIPES, Finished, Runner

from rlvr_probe.model.batch import Batch, Trajectory
from rlvr_probe.model.trace import Step

# Each takes a minute on two cores.
pytestmark = [pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(1500)]

STAGES = {
    "gen": "rollout",
    "verify": "reward",
    "reward": "reward",
    "old_log_prob": "old_logprob",
    "ref": "ref_logprob",
    "adv": "advantage",
    "update_actor": "update_actor",
}
"""Our word for each timer of theirs."""

Ran = tuple[str, Finished]


@pytest.fixture(scope="module", params=RECIPES)
def ran(runner: Runner, request: pytest.FixtureRequest) -> Ran:
    return request.param, runner.finished(RECIPES[request.param])


def steps_of(ran: Ran) -> list[Step]:
    return list(ran[1].trace.steps())


def batches_of(ran: Ran) -> list[Batch]:
    return [batch for step in steps_of(ran) for batch in step.batches]


def rows(batch: Batch) -> list[Trajectory]:
    return [trajectory for group in batch.groups() for trajectory in group.trajectories]


def test_every_step_is_recorded_and_nothing_is_lost(ran: Ran) -> None:
    name, job = ran
    # verl 0.6 starts workers for rewards, and asks them for none where a reward model scores: each
    # may be up, and so recorded, before training is over, or not.
    up = sum(process.role == "RewardManagerWorker" for process in job.trace.processes)
    assert name != "prime" or up <= 2
    idle = {"RewardManagerWorker": 2 - up} if name == "prime" and up < 2 else {}
    assert (job.trace.lost, job.trace.unreached) == ({}, idle)
    assert idle or not job.trace.notes
    states = {process.state for process in job.trace.processes}
    assert states <= {"exited", "ended_with_training"}
    assert {
        process.pid: dict(process.faults) for process in job.trace.processes if process.faults
    } == {}
    assert [len(attempt.sessions) for attempt in job.trace.attempts] == [1]
    assert [step.number for step in steps_of(ran)] == [1, 2]
    assert [step.complete for step in steps_of(ran)] == [True, True]


def test_lengths_and_rewards_are_those_of_the_books(ran: Ran) -> None:
    batches, selected = batches_of(ran), ran[1].truth.selected
    assert [batch.step for batch in batches] == [line["step"] for line in selected]
    for batch, line in zip(batches, selected, strict=True):
        assert [group.trajectories[0].prompt_tokens for group in batch.groups()] == line["inputs"]
        assert [row.response_tokens for row in rows(batch)] == line["responses"]
        given = [reward.value for row in rows(batch) for reward in row.rewards]
        assert given == pytest.approx(line["rewards"])


def test_what_is_kept_is_what_the_recipe_kept(ran: Ran) -> None:
    for batch, line in zip(batches_of(ran), ran[1].truth.selected, strict=True):
        if "kept" in line:
            assert sorted(batch.kept or ()) == line["kept"]
        else:
            assert (batch.kept, batch.used) == (None, None)
    if ran[0] == "prime":
        # It cuts off what it does not use, and no other.
        assert [batch.used for batch in batches_of(ran)] == [
            batch.kept for batch in batches_of(ran)
        ]


def test_every_stage_lasts_as_long_as_the_recipe_timed_it(ran: Ran) -> None:
    name, job = ran
    lines = {line["step"]: line["seconds"] for line in job.truth.timed}
    assert list(lines) == ([] if name == "entropy" else [1, 2])
    for step in steps_of(ran):
        for timer, seconds in lines.get(step.number, {}).items():
            if timer in STAGES:
                recorded = sum(step.stage_seconds(STAGES[timer]).values())
                # A span begins before the timer and ends after it.
                assert seconds - 1e-4 < recorded < seconds + 0.25 * max(seconds, 1.0), timer


def test_the_last_evaluation_is_recorded(ran: Ran) -> None:
    *_, last = ran[1].trace.steps()
    [batch] = last.evaluations
    assert len(list(batch.groups())) == PROMPTS
