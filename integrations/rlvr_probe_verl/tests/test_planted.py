"""A sleep in one place of a real job of verl is the first cause that is named, in seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rlvr_probe_verl.tests.runs import Finished, Runner, Scenario

from tests.planted import Planted, characterized, mistakes, read_books

# Jobs wait for one another, and one takes a minute or two on two cores.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3000)]

FEW = ("trainer.test_freq=-1",)
V0 = Scenario("0.5.0", ranks=2, steps=6, overrides=FEW)
JOBS = {
    "rank": replace(V0, planted=Planted("rank", 1, 1.0)),
    "reward": replace(V0, planted=Planted("reward", "compute_score", 0.4)),
}


@pytest.mark.parametrize(
    "name", ["rank", *(pytest.param(name, marks=pytest.mark.full) for name in list(JOBS)[1:])]
)
def test_what_sleeps_is_the_first_cause_with_its_seconds(runner: Runner, name: str) -> None:
    run = runner.finished(JOBS[name])
    causes, slept = characterized(run.recording).causes, read_books(run.folder / "books")
    assert mistakes(causes, run.scenario.planted, slept, run.scenario.ranks) == []


@pytest.mark.parametrize("job", ["0.5_two_ranks", "0.9_v1"])
def test_of_a_job_in_which_nothing_sleeps_nothing_is_named(run: Finished) -> None:
    causes, slept = characterized(run.recording).causes, read_books(run.folder / "books")
    assert mistakes(causes, None, slept, run.scenario.ranks) == []
