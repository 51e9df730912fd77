"""Two trainings as they were recorded for the corpus, compared with the books that they kept.

What must hold is what must hold of trainings that run now, so it is said there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rlvr_probe_trl.tests import test_conformance as plain
from rlvr_probe_trl.tests import test_tools as tools
from rlvr_probe_trl.tests.runs import Finished

from tests.corpus.recordings import RECORDED, TOOLS, TRL, folder_of, unpacked


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = unpacked("trl", tmp_path_factory.mktemp("trl"))
    return Finished(TRL, folder, "", [folder_of(folder)])


@pytest.fixture(scope="module")
def with_tools(tmp_path_factory: pytest.TempPathFactory) -> tools.Run:
    return tools.Run(unpacked("trl-tools", tmp_path_factory.mktemp("tools")), "")


def named(check: Callable[..., None]) -> str:
    return check.__name__.removeprefix("test_")


@pytest.mark.parametrize(
    "holds",
    [
        plain.test_lengths_are_exactly_those_of_the_run,
        plain.test_completions_cut_off_by_the_cap_are_told_from_those_that_ended,
        plain.test_rewards_are_those_that_the_function_gave,
        plain.test_the_policy_that_sampled_is_the_one_of_the_step_before,
        plain.test_evaluations_are_kept_apart_with_their_own_lengths,
        plain.test_the_workload_holds_every_batch_of_the_run_once,
        plain.test_nothing_is_lost_and_nothing_failed,
        plain.test_every_stage_is_there_on_every_rank_and_step,
        plain.test_a_stage_lies_within_what_contains_it,
        plain.test_the_stages_of_a_step_do_not_overlap_and_fill_most_of_it,
        plain.test_each_kind_of_reward_function_is_timed_and_its_values_kept,
        plain.test_the_report_has_the_rows_that_it_has_of_every_framework,
    ],
    ids=named,
)
def test_of_a_recorded_training(run: Finished, holds: Callable[[Finished], None]) -> None:
    holds(run)


def test_a_recorded_training_states_its_facts(run: Finished) -> None:
    plain.test_a_training_states_its_facts(run, "grpo")
    [attempt] = run.trace.attempts
    assert attempt.sessions[0].facts["framework_version"] == RECORDED["trl"].version


@pytest.mark.parametrize(
    "holds",
    [
        tools.test_nothing_is_lost_and_nothing_failed,
        tools.test_lengths_and_tokens_in_the_loss_are_those_that_trl_trains_on,
        tools.test_the_turns_of_each_trajectory_are_those_that_the_engine_made,
        tools.test_the_tool_calls_of_each_trajectory_are_those_that_the_tools_saw,
    ],
    ids=named,
)
def test_of_a_recorded_training_with_tools(
    with_tools: tools.Run, holds: Callable[..., None]
) -> None:
    holds({TOOLS: with_tools}.__getitem__, TOOLS)


@pytest.mark.parametrize(
    "holds",
    [
        tools.test_a_tool_that_raised_is_known_by_its_exception_type_alone,
        tools.test_a_call_took_as_long_as_its_tool_and_lies_between_its_turns,
        tools.test_asynchronous_tools_of_one_turn_overlap,
        tools.test_the_report_says_how_many_turns_and_calls_there_were,
    ],
    ids=named,
)
def test_of_the_calls_of_a_recorded_training(
    with_tools: tools.Run, holds: Callable[..., None]
) -> None:
    holds({TOOLS: with_tools}.__getitem__)


def test_the_workloads_of_a_recorded_training_with_tools_have_every_length_and_call(
    with_tools: tools.Run, tmp_path: Path
) -> None:
    for number, holds in enumerate(
        (
            tools.test_a_multi_turn_workload_has_every_length_of_the_books,
            tools.test_packed_lengths_of_such_a_run_are_whole_responses,
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        holds({TOOLS: with_tools}.__getitem__, TOOLS, folder)  # type: ignore[arg-type]
    tools.test_a_multi_turn_workload_has_every_tool_call_and_what_it_added(
        {TOOLS: with_tools}.__getitem__,  # type: ignore[arg-type]
        tmp_path,
    )
