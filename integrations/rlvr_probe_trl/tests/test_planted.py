"""Real trainings in which one thing sleeps, and is named first; sound ones are silent."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pytest
from rlvr_probe_trl.tests.runs import Finished, Runner, Scenario

from rlvr_probe.analysis.causes import Cause
from rlvr_probe.analysis.characterization import Characterization
from tests.planted import Planted, Slept, characterized, mistakes, read_books

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(2000)]

TOOLS = Path(__file__).with_name("train_tools.py")

PLANTED = {
    "reward": Scenario("--steps 6", planted=Planted("reward", "keeper", 0.8)),
    "reward_sometimes": Scenario(
        "--steps 6", "launcher", planted=Planted("reward", "keeper", 1.0, steps=(2, 5))
    ),
    "reward_two_ranks": Scenario("--steps 6", ranks=2, planted=Planted("reward", "keeper", 0.8)),
    "rank": Scenario("--steps 6", "launcher", ranks=2, planted=Planted("rank", 1, 2.0)),
    "tool": Scenario(
        "--kind few_tools --steps 3", script=TOOLS, planted=Planted("tool", "search", 0.5)
    ),
}
"""What sleeps can be told."""

REST = [pytest.param(name, marks=pytest.mark.full) for name in PLANTED if name != "reward"]
"""Those that continuous integration has no time for."""

UPDATE = Scenario("--steps 6 --asleep-in update", ranks=2, planted=Planted("rank", 1, 0.5))
"""A rank sleeps where gradients are made, while the other waits for it in their reduction."""

SOUND = {
    "sound": Scenario("--steps 6 --verifier-s 0"),
    "sound_two_ranks": Scenario("--steps 6 --verifier-s 0", ranks=2),
    "sound_tools": Scenario("--kind few_tools --steps 3 --tool-s 0", script=TOOLS),
}
"""Nothing sleeps, not even to stand for work: 20 ms are a larger share of a step the faster the
machine is, and rightly named from 6 % on."""


class Told:
    """A training, its book, and what is said of it."""

    def __init__(self, run: Finished) -> None:
        self.scenario = run.scenario
        self.slept: Slept = read_books(run.folder / "slept")
        [self._recording] = run.recordings

    @cached_property
    def said(self) -> Characterization:
        """All of it."""
        return characterized(self._recording)

    @property
    def causes(self) -> list[Cause]:
        """Ranked."""
        return list(self.said.causes)


class Trainings:
    """Each is characterized once."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._told: dict[Scenario, Told] = {}

    def __call__(self, scenario: Scenario) -> Told:
        if scenario not in self._told:
            self._told[scenario] = Told(self._runner.finished(scenario))
        return self._told[scenario]


@pytest.fixture(scope="module")
def trainings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trainings]:
    runner = Runner(tmp_path_factory.mktemp("planted"))
    runner.start_named(request.session, "name", PLANTED | SOUND)
    yield Trainings(runner)
    runner.close()


@pytest.mark.parametrize("name", ["reward", *REST])
def test_what_sleeps_is_named_first_with_its_seconds_and_nothing_else_is(
    trainings: Trainings, name: str
) -> None:
    recorded = trainings(PLANTED[name])
    assert (
        mistakes(
            recorded.causes, recorded.scenario.planted, recorded.slept, recorded.scenario.ranks
        )
        == []
    )


# What a rank does itself is no wait.
@pytest.mark.parametrize(
    "name", ["reward", *(planted for planted in REST if planted.values != ("rank",))]
)
def test_what_is_a_part_costs_no_more_than_the_whole(trainings: Trainings, name: str) -> None:
    recorded = trainings(PLANTED[name])
    ledger = recorded.said.ledger
    assert ledger is not None
    waited = sum(ns for category, ns in ledger.ns.items() if category.startswith("wait.")) / 1e9
    assert recorded.causes[0].gpu_s <= 1.05 * waited


@pytest.mark.parametrize(
    "name", ["sound", *(pytest.param(name, marks=pytest.mark.full) for name in [*SOUND][1:])]
)
def test_a_sound_training_is_silent(trainings: Trainings, name: str) -> None:
    recorded = trainings(SOUND[name])
    assert recorded.slept.calls == 0
    assert mistakes(recorded.causes, None, recorded.slept, recorded.scenario.ranks) == []


@pytest.mark.full
def test_a_sleep_in_some_steps_costs_these_alone(trainings: Trainings) -> None:
    recorded = trainings(PLANTED["reward_sometimes"])
    [first, *_] = recorded.causes
    assert "in 2 of 6 steps" in first.title
    assert len(first.evidence["step"].ids) == 2
    assert first.gpu_s == pytest.approx(recorded.slept.wall_s, rel=0.02)


@pytest.mark.full
def test_who_is_late_in_an_update_is_not_guessed(trainings: Trainings) -> None:
    """Without tensor activity of a GPU a wait in a collective looks like work: a note says so."""
    recorded = trainings(UPDATE)
    assert recorded.slept.calls >= 6
    assert [cause.title for cause in recorded.causes if not cause.natural] == []
    assert any("inside a collective of an update" in note for note in recorded.said.notes)
