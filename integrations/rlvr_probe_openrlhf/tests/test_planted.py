"""A sleep in one place of a real job of OpenRLHF is the first cause that is named, in seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rlvr_probe_openrlhf.tests.runs import (
    FEW,
    GROUP,
    PROMPTS,
    SCENARIOS,
    Finished,
    Runner,
    Scenario,
)

from tests.planted import (
    Planted,
    Slept,
    characterized,
    mistakes,
    read_books,
    slept_together,
)

# Jobs wait for one another, and one takes a minute or two on two cores.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3000)]

TOGETHER = PROMPTS * GROUP
"""Trajectories of a step."""
# Else as many would be verified at a time as the machine has cores.
ONE_OF_A_STEP = (f"OPENRLHF_CPU_SLEEPS_EVERY={TOGETHER}",)
SLEEP = Scenario(steps=6, arguments=FEW)
JOBS = {
    "tool": SCENARIOS["agent"],
    "reward": replace(
        SLEEP, ranks=2, environment=ONE_OF_A_STEP, planted=Planted("reward", "reward_func", 1.0)
    ),
    "rank": replace(SLEEP, ranks=2, planted=Planted("rank", 1, 2.0)),
}


def slept(run: Finished) -> Slept:
    """What would have been saved without the sleep."""
    result, job = read_books(run.folder / "books"), run.scenario
    return slept_together(result, job.planted, run.truth.rewards, TOGETHER, job.steps)


def wrong(run: Finished) -> list[str]:
    """What is wrong with the causes that are named.

    A machine without GPUs has those that the ledger takes ranks and engines for.
    """
    result = characterized(run.recording)
    assert result.ledger is not None
    gpus = len(result.ledger.gpus)
    return mistakes(result.causes, run.scenario.planted, slept(run), gpus)


@pytest.mark.parametrize(
    "name", ["tool", *(pytest.param(name, marks=pytest.mark.full) for name in ("reward", "rank"))]
)
def test_what_sleeps_is_the_first_cause_with_its_seconds(runner: Runner, name: str) -> None:
    assert wrong(runner.finished(JOBS[name])) == []


@pytest.mark.parametrize("job", ["one_rank"])
def test_of_a_job_in_which_nothing_sleeps_nothing_is_named(run: Finished) -> None:
    assert wrong(run) == []
