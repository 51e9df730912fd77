"""Real trainings in which any part of a step is slow, or what is between steps: it is named first.

What has to be named is known to the training alone: it was chosen without a look at what is looked
for.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rlvr_probe_trl.tests.plant import PLANTED, SOUND, wrong
from rlvr_probe_trl.tests.runs import Runner

from tests.planted import characterized

pytestmark = [pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(3000)]


class OneByOne(Runner):
    """What disturbs a training from outside disturbs no other."""

    at_once = 1


@pytest.fixture(scope="module")
def runner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runner]:
    runner = OneByOne(tmp_path_factory.mktemp("wider"))
    runner.start_named(request.session, "name", PLANTED | SOUND)
    yield runner
    runner.close()


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_slow_is_named_first_with_its_seconds_and_nothing_else_is(
    runner: Runner, name: str
) -> None:
    run = runner.finished(PLANTED[name])
    assert wrong(run, characterized(run.recording)) == []


@pytest.mark.parametrize("name", SOUND)
def test_of_a_training_in_which_nothing_is_slow_nothing_is_named(runner: Runner, name: str) -> None:
    run = runner.finished(SOUND[name])
    assert wrong(run, characterized(run.recording)) == []
