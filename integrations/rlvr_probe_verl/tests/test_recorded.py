"""A job as it was recorded for the corpus, compared with the books that its servers and it kept.

What must hold is what must hold of jobs that run now, so it is said there.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rlvr_probe_verl.tests import test_jobs as jobs
from rlvr_probe_verl.tests import test_workloads as workloads
from rlvr_probe_verl.tests.runs import Finished

from tests.corpus.recordings import VERL, unpacked


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return Finished(VERL, unpacked("verl", tmp_path_factory.mktemp("verl")))


@pytest.mark.parametrize(
    "holds",
    [
        jobs.test_count_sum_mean_and_extremes_of_lengths_are_those_that_verl_logged,
        jobs.test_every_stage_lasts_as_long_as_verl_says,
        jobs.test_every_rank_took_part_in_every_call_of_its_worker_group,
        jobs.test_the_processes_that_recorded_are_the_python_processes_of_the_job,
        jobs.test_one_process_is_the_controller_and_each_rank_is_a_worker,
        jobs.test_every_request_of_a_server_is_a_turn_of_the_recording_and_lies_within_it,
        jobs.test_cached_tokens_are_those_that_the_server_found,
        jobs.test_rewards_are_those_that_the_function_gave,
        jobs.test_every_call_of_the_tool_is_there_with_its_outcome_and_time,
        jobs.test_the_turns_of_a_trajectory_continue_one_another,
        jobs.test_each_rank_works_on_the_gpu_that_ray_gave_it,
        workloads.test_the_workload_holds_every_turn_that_was_served,
    ],
    ids=lambda holds: holds.__name__.removeprefix("test_"),
)
def test_of_a_recorded_job(recorded: Finished, holds: Callable[[Finished], None]) -> None:
    holds(recorded)
