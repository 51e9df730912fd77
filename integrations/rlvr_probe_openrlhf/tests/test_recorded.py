"""Jobs as they were recorded for the corpus, compared with the books that their engines kept.

What must hold is what must hold of jobs that run now, so it is said there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from rlvr_probe_openrlhf.tests import test_jobs as jobs
from rlvr_probe_openrlhf.tests import test_workloads as workloads
from rlvr_probe_openrlhf.tests.runs import Finished

from tests.corpus.recordings import AGENT, OPENRLHF, unpacked

Make = Callable[[str], Finished]

SCENARIOS = {"openrlhf": OPENRLHF, "openrlhf-agent": AGENT}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Make:
    return cache(
        lambda name: Finished(SCENARIOS[name], unpacked(name, tmp_path_factory.mktemp(name)))
    )


def named(check: Callable[[Finished], None]) -> str:
    return check.__name__.removeprefix("test_")


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize(
    "holds",
    [
        jobs.test_lengths_turns_truncation_and_engines_are_those_of_the_engines_books,
        jobs.test_weights_that_a_trajectory_saw_are_those_that_its_engine_had,
        jobs.test_every_request_lies_within_its_turn,
        jobs.test_cached_tokens_and_time_in_the_queue_are_those_of_the_engine,
        jobs.test_rewards_are_those_that_were_given,
        jobs.test_stages_last_as_long_as_openrlhf_says,
        jobs.test_every_rank_took_part_in_every_call_of_its_group,
        jobs.test_nothing_is_lost_and_nothing_failed,
        jobs.test_every_actor_of_openrlhf_recorded,
        jobs.test_the_report_has_the_rows_that_it_has_of_every_framework,
    ],
    ids=named,
)
def test_of_a_recorded_job(opened: Make, name: str, holds: Callable[[Finished], None]) -> None:
    holds(opened(name))


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        (
            "openrlhf",
            workloads.test_the_workload_holds_what_engines_generated_and_how_long_rewards_took,
        ),
        (
            "openrlhf-agent",
            workloads.test_the_workload_holds_every_turn_and_when_the_reward_came,
        ),
    ],
)
def test_of_the_workload_of_a_recorded_job(
    opened: Make, name: str, holds: Callable[[Finished], None]
) -> None:
    holds(opened(name))
