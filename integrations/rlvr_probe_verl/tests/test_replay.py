"""Real jobs of verl, recorded and replayed, compared by the tensors that both were trained on."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from rlvr_probe_verl.recorded_samples import Samples
from rlvr_probe_verl.replay import VerlReplay
from rlvr_probe_verl.tests.runs import Finished, Runner, Scenario

from rlvr_probe.exceptions import SteeringError
from rlvr_probe.steering import (
    Plan,
    PlannedBatch,
    PlannedCall,
    PlannedGroup,
    PlannedSample,
    PlannedTurn,
    Steering,
)

SCENARIOS = {
    "v0": Scenario("0.9.1", how="launcher", ranks=2),
    "v1": Scenario("0.9.1", "v1", how="launcher", overrides=("trainer.test_freq=-1",)),
    "0.8": Scenario("0.8.0", how="launcher"),
    "0.7": Scenario("0.7.1", how="launcher"),
}
CAP = 32
"""Longest response that they allow."""
FULL = frozenset({"v0", "0.8", "0.7"})
every_job = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full if name in FULL else ()) for name in
             SCENARIOS],
)  # fmt: skip


def replayed(recorded: Finished, *options: str, **changes: Any) -> Scenario:
    """The job that replays one: its own rollouts would differ, by another seed."""
    return replace(
        recorded.scenario,
        how="replay",
        workload=(str(recorded.recording), *options),
        environment=(*recorded.scenario.environment, "VERL_CPU_SEED=7"),
        **changes,
    )


def steps(finished: Finished) -> list[list[tuple[int, list[tuple[int, bool, float]]]]]:
    """Of each step, the prompt length of every group, with length, cut and reward of its samples.

    In no order: verl moves rows before it trains on them.
    """
    by_step = defaultdict[int, list[dict[str, Any]]](list)
    for number, line in enumerate(finished.truth.trained):
        by_step[line.get("step", number)] += line["samples"]
    return [groups(by_step[step]) for step in sorted(by_step)]


def groups(samples: list[dict[str, Any]]) -> list[tuple[int, list[tuple[int, bool, float]]]]:
    by_uid = defaultdict[str, list[dict[str, Any]]](list)
    for sample in samples:
        by_uid[sample["uid"]].append(sample)
    prompts = {uid: {tuple(sample["prompt"]) for sample in own} for uid, own in by_uid.items()}
    # A group is one prompt, and two groups are two.
    assert all(len(own) == 1 for own in prompts.values())
    assert len(set.union(*prompts.values())) == len(prompts)
    return sorted(
        (
            len(next(iter(prompts[uid]))),
            # The stand-in for an engine ends some without an end token, which are not cut either.
            sorted(
                (
                    sample["response"],
                    sample["response"] == CAP and not sample["ended"],
                    sample["reward"],
                )
                for sample in own
            ),
        )
        for uid, own in by_uid.items()
    )


@pytest.mark.conformance
@pytest.mark.timeout(1800)
@every_job
def test_every_sample_of_a_replay_is_what_was_recorded(name: str, runner: Runner) -> None:
    recorded = runner.finished(SCENARIOS[name])
    again = runner.finished(replayed(recorded))
    expected = steps(recorded)
    samples = [sample for step in expected for _, group in step for sample in group]
    assert len(samples) == 2 * 4 * 4
    assert {cut for _, cut, _ in samples} == {True, False}
    assert len({length for length, *_ in samples}) > 8
    assert steps(again) == expected
    generated = [sample for line in again.truth.trained for sample in line["samples"]]
    assert sum(sample["inner_ends"] for sample in generated) == 0
    assert sum(sample["ended"] for sample in generated) == sum(not cut for _, cut, _ in samples)
    assert "replayed all 2 batches" in again.output
    assert "lengths: parameters of each request, by an agent loop (rung 2 of 5)" in again.output


@pytest.mark.conformance
@pytest.mark.timeout(1800)
def test_a_job_that_does_not_fit_is_refused_with_the_settings_to_change(runner: Runner) -> None:
    overrides = (
        "data.train_batch_size=3",
        "data.max_prompt_length=32",
        "data.max_response_length=33",
        "actor_rollout_ref.rollout.n=2",
        "trainer.total_training_steps=3",
        "trainer.v1.trainer_mode=colocate_async",
        "algorithm.filter_groups.enable=True",
    )
    recorded = runner.finished(SCENARIOS["v1"])
    again = runner.finished(replayed(recorded, overrides=overrides, exit_status=1))
    longest = max(
        len(sample["prompt"]) for own in recorded.truth.trained for sample in own["samples"]
    )
    for setting in (
        "data.train_batch_size=4 (found 3)",
        f"data.max_prompt_length={longest} (found 32)",
        "data.max_response_length=32 (found 33)",
        "actor_rollout_ref.rollout.n=4 (found 2)",
        "trainer.total_training_steps=2 (found 3)",
        "trainer.v1.trainer_mode=sync (found colocate_async)",
        "algorithm.filter_groups.enable=False (found True)",
    ):
        assert setting in again.output
    assert "nothing was replayed: verl was imported" in again.output


# ---------------------------------------------------------------- plans


def plan(*batches: list[list[PlannedSample]], calls: tuple[PlannedCall, ...] = ()) -> Plan:
    """Batches of groups of samples, generated by two shares."""
    made = tuple(
        PlannedBatch(step, tuple(PlannedGroup(5, tuple(group)) for group in groups), calls, 2)
        for step, groups in enumerate(batches, 1)
    )
    return Plan("made", "verl", made, ("score",), len(batches[0][0]), 9)


ONE = PlannedSample(4, False, (0.5,))


def test_what_verl_cannot_replay_is_refused() -> None:
    replay = VerlReplay()
    turns = replace(ONE, turns=(PlannedTurn(5, 2), PlannedTurn(8, 1)))
    assert replay.refusal(plan([[ONE]])) is None
    assert replay.refusal(plan([[ONE, ONE]], [[ONE, ONE]])) is None
    assert replay.refusal(plan([[turns]])) == "turns and tool calls cannot be steered in verl yet"
    assert replay.refusal(plan([[ONE, ONE], [ONE]])) == (
        "groups have 1, 2 samples; verl needs the same number in each"
    )
    assert replay.refusal(plan([[ONE]], [[ONE]] * 2)) == (
        "batches have 1, 2 prompts; choose steps of one size with --steps"
    )


def test_the_settings_are_those_of_the_plan() -> None:
    assert VerlReplay().settings(plan(*[[[ONE, ONE]] * 3] * 2)) == {
        "data.train_batch_size": 3,
        "actor_rollout_ref.rollout.n": 2,
        "data.max_prompt_length": 5,
        "data.max_response_length": 9,
        "trainer.total_training_steps": 2,
    }


def test_what_is_not_reproduced_is_listed() -> None:
    none = replace(ONE, rewards=(None, 1.0))
    made = plan([[none, replace(ONE, rewards=(0.5, 1.0))]])
    lost = VerlReplay().losses(replace(made, functions=("first", "second")))
    assert "verl has one reward function: it gives the sum of 2" in lost
    assert "1 samples for which a reward function gave nothing get 0 of it" in lost


def given(made: Plan) -> Samples:
    return Samples(Steering(made, print, lambda *_: None))


def test_a_reward_takes_as_long_as_its_own_calls_and_those_of_its_batch() -> None:
    calls = (
        PlannedCall(0, 0, 2.0, start_s=-5.0, row=0),
        PlannedCall(0, 0, 2.0, start_s=-4.0, row=0),  # at the same time, for a second
        PlannedCall(0, 0, 1.5, row=1),
        PlannedCall(0, 0, 0.25),
        PlannedCall(0, 1, 0.75),
    )
    made = given(plan([[ONE, ONE], [ONE, ONE]], [[ONE, ONE], [ONE, ONE]], calls=calls))
    assert [made.seconds(number) for number in range(4, 8)] == [3.75, 2.25, 0.75, 0.75]


def test_a_sample_is_known_by_its_group_and_its_number_there() -> None:
    samples = [replace(ONE, response_tokens=tokens) for tokens in range(1, 9)]
    made = given(plan([samples[:2], samples[2:4]], [samples[4:6], samples[6:]]))
    assert made.sample(made.number(2, 1)).response_tokens == 6
    for group, row in ((4, 0), (0, 2), (-1, 0)):
        with pytest.raises(SteeringError, match=f"sample {row} of group {group}"):
            made.number(group, row)


def test_a_reward_is_the_sum_of_what_functions_gave() -> None:
    made = given(plan([[replace(ONE, rewards=(0.5, None, 0.25)), replace(ONE, rewards=(None,))]]))
    assert [made.reward(number) for number in (0, 1)] == [0.75, 0.0]
