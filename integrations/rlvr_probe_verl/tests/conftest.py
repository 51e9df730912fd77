"""One runner for all tests of verl: a job runs while tests look at finished ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rlvr_probe_verl.tests.runs import SCENARIOS, Finished, Runner

pytest.register_assert_rewrite("tests.answers")


@pytest.fixture(scope="session")
def runner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runner]:
    runner = Runner(tmp_path_factory.mktemp("verl"))
    runner.start_named(request.session, "job", SCENARIOS)
    yield runner
    runner.close()


@pytest.fixture
def run(runner: Runner, job: str) -> Finished:
    """The job that a test names by its parameter ``job``."""
    return runner.finished(SCENARIOS[job])
