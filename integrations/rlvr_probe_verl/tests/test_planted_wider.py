"""Real jobs of verl in which any part of a step is slow, or what is between: it is named first.

What has to be named is known to the job alone: it was chosen without a look at what is looked for.
"""

from __future__ import annotations

import pytest
from rlvr_probe_verl.tests.plant import PLANTED, SOUND, wrong
from rlvr_probe_verl.tests.runs import Runner

from tests.planted import characterized

pytestmark = [pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(3000)]


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_slow_is_named_first_with_its_seconds_and_nothing_else_is(
    runner: Runner, name: str
) -> None:
    run = runner.finished(PLANTED[name])
    assert wrong(run, characterized(run.recording)) == []


@pytest.mark.parametrize("name", SOUND)
def test_of_a_job_in_which_nothing_is_slow_nothing_is_named(runner: Runner, name: str) -> None:
    run = runner.finished(SOUND[name])
    assert wrong(run, characterized(run.recording)) == []
