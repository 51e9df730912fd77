"""A sleep in one place of a real job of verl is the first cause that is named, in seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rlvr_probe_verl.tests.runs import PROMPTS, SCENARIOS, Finished, Runner, Scenario

from tests.planted import (
    Planted,
    Slept,
    characterized,
    mistakes,
    read_books,
    saved_by_ranks_s,
    slept_together,
)

# Jobs wait for one another, and one takes a minute or two on two cores.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3000)]

FEW = ("trainer.test_freq=-1",)
V0 = Scenario("0.5.0", ranks=2, steps=6, overrides=FEW)
V1 = Scenario("0.9.1", "v1", ranks=2, steps=6, overrides=FEW)
TOGETHER = PROMPTS * V1.group_size
"""Trajectories of a step, where they go their own way."""
# Else as many would be verified at a time as the machine has cores.
ONE_OF_A_STEP = (f"VERL_CPU_SLEEPS_EVERY={TOGETHER}",)
JOBS = {
    "rank": SCENARIOS["0.5_two_ranks"],
    "v1_rank": replace(
        V1,
        # With a reference policy it would sleep in two stages.
        overrides=(*FEW, "actor_rollout_ref.actor.use_kl_loss=False"),
        planted=Planted("rank", 1, 1.0),
    ),
    "reward": replace(V0, planted=Planted("reward", "compute_score", 0.4)),
    "v1_reward": replace(
        V1, environment=ONE_OF_A_STEP, planted=Planted("reward", "compute_score", 2.0)
    ),
    "tool": replace(V1, trainer="v0", steps=4, tools=1, planted=Planted("tool", "calc", 2.0)),
}


def slept(run: Finished) -> Slept:
    """What would have been saved without the sleep."""
    result, job = read_books(run.folder / "books"), run.scenario
    if job.planted is not None and job.planted.kind == "rank":
        return replace(result, wall_s=saved_by_ranks_s(run.truth.log_probs))
    if job.verl == V0.verl:  # its batches are verified after their rollout, one after another
        return result
    return slept_together(result, job.planted, run.truth.rewards, TOGETHER, job.steps)


def wrong(run: Finished) -> list[str]:
    """What is wrong with the causes that are named."""
    causes = characterized(run.recording).causes
    return mistakes(causes, run.scenario.planted, slept(run), run.scenario.ranks)


@pytest.mark.parametrize(
    "name", ["rank", *(pytest.param(name, marks=pytest.mark.full) for name in list(JOBS)[1:])]
)
def test_what_sleeps_is_the_first_cause_with_its_seconds(runner: Runner, name: str) -> None:
    assert wrong(runner.finished(JOBS[name])) == []


@pytest.mark.parametrize("job", ["0.9_v1", pytest.param("0.9_v0", marks=pytest.mark.full)])
def test_of_a_job_in_which_nothing_sleeps_nothing_is_named(run: Finished) -> None:
    assert wrong(run) == []
