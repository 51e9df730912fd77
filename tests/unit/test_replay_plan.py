"""The plan of a replay: made of workloads written by hand, scaled, averaged, refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.exceptions import SteeringError
from rlvr_probe.model.batch import Batch, BatchShard, RewardCall, RewardColumn, ToolCall, Turn
from rlvr_probe.model.reward_calls import RewardCallColumns
from rlvr_probe.model.workload import ReadBatch, ReadWorkload, UntimedDuration
from rlvr_probe.steering import (
    Plan,
    PlannedBatch,
    PlannedCall,
    PlannedGroup,
    PlannedSample,
    PlannedTool,
    PlannedTurn,
    concurrent_functions,
    drawn_tokens,
    reward_waits,
    row_waits,
)
from rlvr_probe.steering.build import make_plan
from rlvr_probe.steering.plan import read_plan, write_plan
from rlvr_probe.steering.progress import Progress, read_outcome
from rlvr_probe.steering.scale import make_naive, scale_lengths, shape

S = 1_000_000_000


def shard(offset: int, responses: list[int], **given: Any) -> BatchShard:
    """Rows of one process, of prompts of 7 and 9 tokens, two samples each."""
    prompts = [7 if row < 2 else 9 for row in range(offset, offset + len(responses))]
    made = BatchShard(
        process=offset // 2, rank=offset // 2, offset=offset, prompt_tokens=prompts,
        response_tokens=responses, truncated=[tokens == 20 for tokens in responses],
        start_ns=S, end_ns=10 * S,
    )  # fmt: skip
    made.rewards = [RewardColumn("exact", 0, [float(n) for n in responses], None)]
    calls = RewardCallColumns()
    calls.append(RewardCall(made.process, "exact", 11 * S, 13 * S, len(responses)))
    made.calls = calls
    for name, value in given.items():
        setattr(made, name, value)
    return made


def batch(*shards: BatchShard, step: int = 1, **given: Any) -> Batch:
    return Batch("train", step, 0, 0, 2, 4, list(shards), **given)


def workload(*batches: Batch, lasting: tuple[UntimedDuration, ...] = ()) -> ReadWorkload:
    return ReadWorkload("made", tuple(ReadBatch(at, own, 0, lasting) for at, own in
        enumerate(batches)), group_size=2, max_response_tokens=20)  # fmt: skip


def plan_of(read: ReadWorkload, **options: Any) -> Plan:
    return make_plan(read, source="made", **options)


def sample(tokens: int) -> PlannedSample:
    return PlannedSample(tokens, False, (float(tokens),))


TWO_RANKS = (shard(0, [3, 20]), shard(2, [5, 1]))


def test_a_plan_has_the_lengths_ends_rewards_and_waits_of_the_workload() -> None:
    plan = plan_of(workload(batch(*TWO_RANKS)))
    assert plan.functions == ("exact",)
    assert (plan.group_size, plan.cap, plan.notes) == (2, 20, ())
    assert plan.batches == (
        PlannedBatch(
            step=1,
            groups=(
                PlannedGroup(
                    7, (sample(3), PlannedSample(20, True, (20.0,))), trained=True, start_s=0.0
                ),
                PlannedGroup(9, (sample(5), sample(1)), trained=True, start_s=0.0),
            ),
            calls=(PlannedCall(0, 0, 2.0, 1.0), PlannedCall(0, 1, 2.0, 1.0)),
            shares=2,
        ),
    )


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    plan = plan_of(workload(batch(*TWO_RANKS)))
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan


def test_steps_choose_and_a_range_without_any_is_refused() -> None:
    read = workload(*(batch(*TWO_RANKS, step=step) for step in (3, 4, 5)))
    assert [own.step for own in plan_of(read, steps=(4, 9)).batches] == [4, 5]
    with pytest.raises(SteeringError, match="has steps 3 to 5; expected some of 6 to 9"):
        plan_of(read, steps=(6, 9))


def test_groups_that_were_not_trained_on_are_marked() -> None:
    plan = plan_of(workload(batch(*TWO_RANKS, kept=frozenset({0, 1}), used=frozenset({1}))))
    assert [group.trained for group in plan.groups] == [False, True]


def test_where_ends_are_unknown_the_cap_tells_them() -> None:
    shards = [replace(own, truncated=None) for own in TWO_RANKS]
    read = replace(workload(batch(*shards)), max_response_tokens=None)
    with pytest.raises(SteeringError, match="--response-length TOKENS"):
        plan_of(read)
    assert [own.cut for own in plan_of(read, response_cap=20).samples] == [
        False,
        True,
        False,
        False,
    ]
    with pytest.raises(SteeringError, match="has 20 tokens, expected at most 19"):
        plan_of(read, response_cap=19)


@pytest.mark.parametrize("seconds", [None, "no call"])
def test_an_unknown_wait_is_refused_and_never_taken_for_0(seconds: object) -> None:
    silent = [replace(own, calls=RewardCallColumns()) for own in TWO_RANKS]
    lasting = tuple(
        UntimedDuration("reward_call", None if seconds is None else 2.0, process=at, name="exact")
        for at in (0, 1)
    )[: 2 if seconds is None else 1]
    read = workload(batch(*silent), lasting=lasting)
    with pytest.raises(SteeringError, match="how long exact took in step 1 is unknown"):
        plan_of(read)
    assert plan_of(read, sleep=False).functions == ()


def test_a_workload_without_reward_functions_needs_real_ones() -> None:
    silent = [replace(own, calls=RewardCallColumns(), rewards=[]) for own in TWO_RANKS]
    with pytest.raises(SteeringError, match="--rewards real"):
        plan_of(workload(batch(*silent)))


def test_training_alone_waits_for_nothing_so_that_no_wait_has_to_be_known() -> None:
    turns = {0: (Turn(0, 7, 3, None, None, None),)}
    tools = {0: (ToolCall(0, "search", "ok", None, 2 * S, 5 * S),)}
    called = shard(0, [3, 20], turns=turns, tool_calls=tools)
    read = workload(batch(called, TWO_RANKS[1]))
    whole, rollout, half = (
        plan_of(read),
        plan_of(read, half="rollout"),
        plan_of(read, half="training"),
    )
    assert any(own.tools for own in whole.samples)
    assert rollout == replace(whole, half="rollout")
    assert half.half == "training"
    assert [own.calls for own in half.batches] == [()]
    assert not any(own.tools for own in half.samples)
    assert [replace(own, tools=()) for own in whole.samples] == list(half.samples)
    silent = [replace(own, calls=RewardCallColumns()) for own in TWO_RANKS]
    unknown = plan_of(workload(batch(*silent)), half="training")
    assert [own.reward for own in unknown.samples] == [3.0, 20.0, 5.0, 1.0]
    bare = [replace(own, rewards=[]) for own in silent]
    drawn = plan_of(workload(batch(*bare)), half="training")
    assert drawn.functions == ("reward",)
    assert {own.reward for own in drawn.samples} <= {0.0, 1.0}
    assert drawn.notes == ("values of reward are unknown, so 0 or 1 is drawn for each sample",)
    assert make_naive(scale_lengths(half, Fraction(1, 2))).half == "training"


def test_what_a_sample_generates_is_its_own_and_the_same_each_time() -> None:
    plan = plan_of(workload(batch(*TWO_RANKS)))
    drawn = [
        drawn_tokens(plan, group, range(9), count=20, turn=turn, sample=number)
        for group in (0, 1) for turn in (0, 1) for number in (None, 0, 1)
    ]  # fmt: skip
    assert len({tuple(own) for own in drawn}) == len(drawn)
    assert drawn_tokens(plan, 1, range(9), count=20, turn=1, sample=1) == drawn[-1]


def test_unknown_reward_values_are_drawn_and_that_is_said() -> None:
    lasting = tuple(UntimedDuration("reward_call", 2.0, process=at, samples=2) for at in (0, 1))
    silent = [replace(own, calls=RewardCallColumns(), rewards=[]) for own in TWO_RANKS]
    plan = plan_of(workload(batch(*silent), lasting=lasting))
    assert plan.notes == ("values of reward are unknown, so 0 or 1 is drawn for each sample",)
    assert {sample.rewards[0] for sample in plan.samples} <= {0.0, 1.0}
    assert [call.seconds for call in plan.batches[0].calls] == [2.0, 2.0]


def test_a_wait_for_all_functions_together_is_that_of_the_first() -> None:
    lasting = tuple(UntimedDuration("reward_call", 2.0 + at, process=at) for at in (0, 1))
    columns = [
        [RewardColumn(name, at, [0.5, 0.5], None) for at, name in enumerate(("exact", "brief"))]
        for _ in TWO_RANKS
    ]
    silent = [
        replace(own, calls=RewardCallColumns(), rewards=rewards)
        for own, rewards in zip(TWO_RANKS, columns, strict=True)
    ]
    plan = plan_of(workload(batch(*silent), lasting=lasting))
    assert plan.functions == ("exact", "brief")
    assert [(call.function, call.share, call.seconds) for call in plan.batches[0].calls] == [
        (0, 0, 2.0),
        (0, 1, 3.0),
    ]
    assert plan.notes == (
        "only how long all reward functions took together is known: exact takes that",
    )


def test_a_reward_that_was_none_or_nan_is_none() -> None:
    values = [RewardColumn("exact", 0, [None, float("nan")], None)]
    plan = plan_of(workload(batch(replace(TWO_RANKS[0], rewards=values), TWO_RANKS[1])))
    assert [sample.rewards for sample in plan.samples] == [(None,), (None,), (5.0,), (1.0,)]


def test_two_functions_of_one_name_are_two() -> None:
    columns = [RewardColumn("exact", at, [1.0 * at, 2.0], None) for at in (0, 1)]
    calls = RewardCallColumns()
    for start, end in ((11, 12), (12, 15)):
        calls.append(RewardCall(0, "exact", start * S, end * S, 4))
    own = shard(0, [3, 20, 5, 1], rewards=[], calls=calls)
    columns = [RewardColumn("exact", at, [float(at)] * 4, None) for at in (0, 1)]
    plan = plan_of(workload(batch(replace(own, rewards=columns))))
    assert plan.functions == ("exact", "exact")
    assert next(plan.samples).rewards == (0.0, 1.0)
    assert [(call.function, call.seconds) for call in plan.batches[0].calls] == [(0, 1.0), (1, 3.0)]


def test_incomplete_batches_and_empty_responses_are_refused() -> None:
    with pytest.raises(SteeringError, match="step 1 has 2 of 4 samples"):
        plan_of(workload(batch(TWO_RANKS[0])))
    with pytest.raises(SteeringError, match="row 3 of step 1 has a response of no tokens"):
        plan_of(workload(batch(TWO_RANKS[0], shard(2, [5, 0]))))


def test_a_plan_of_an_asynchronous_run_says_so() -> None:
    [note] = plan_of(workload(batch(*TWO_RANKS, queued=True))).notes
    assert note.startswith("recorded with generation beside training")


def test_turns_and_tools_are_planned_and_unknown_ones_refused() -> None:
    turns = {0: (Turn(0, 7, 2, None, None, None), Turn(1, 15, 3, None, None, None))}
    tools = {0: (ToolCall(0, "search", "ok", None, 2 * S, 5 * S),)}
    own = shard(0, [11, 20], turns=turns, tool_calls=tools)
    first = next(plan_of(workload(batch(own, TWO_RANKS[1]))).samples)
    assert first.turns == (PlannedTurn(7, 2), PlannedTurn(15, 3))
    assert first.tools == (PlannedTool(0, 3.0),)
    unknown = {0: (Turn(0, 7, 2, None, None, None), Turn(1, 15, None, None, None, None))}
    with pytest.raises(SteeringError, match="the response of a turn is unknown in row 0"):
        plan_of(workload(batch(shard(0, [11, 20], turns=unknown), TWO_RANKS[1])))
    waiting = (UntimedDuration("tool_call", None, row=0, turn=0),)
    with pytest.raises(SteeringError, match="how long a tool call took is unknown in row 0"):
        plan_of(workload(batch(own, TWO_RANKS[1]), lasting=waiting))


# ---------------------------------------------------------------- plans made of a plan


def test_scaled_lengths_are_rounded_and_at_least_1() -> None:
    plan = scale_lengths(plan_of(workload(batch(*TWO_RANKS))), Fraction(1, 4))
    assert [group.prompt_tokens for group in plan.groups] == [2, 2]
    assert [sample.response_tokens for sample in plan.samples] == [1, 5, 1, 1]
    assert (plan.cap, [sample.cut for sample in plan.samples]) == (5, [False, True, False, False])


def test_the_naive_plan_has_means_alone() -> None:
    other = batch(shard(0, [4, 4]), shard(2, [4, 15]), step=2)
    naive = make_naive(plan_of(workload(batch(*TWO_RANKS), other)))
    assert {group.prompt_tokens for group in naive.groups} == {8}
    assert set(naive.samples) == {PlannedSample(7, False, (7.0,))}
    assert {(call.share, call.seconds) for own in naive.batches for call in own.calls} == {
        (0, 2.0),
        (1, 2.0),
    }


def test_calls_for_single_rows_take_their_mean_in_a_naive_plan() -> None:
    calls = (PlannedCall(0, 0, 1.0, 2.0, row=0), PlannedCall(0, 0, 4.0, 2.5, row=1))
    group = PlannedGroup(5, (PlannedSample(4, False, (1.0,)),) * 2)
    made = Plan("made", "verl", (PlannedBatch(1, (group,), calls, 1),), ("exact",), 2, 9)
    [naive] = make_naive(made).batches
    assert naive.calls == tuple(replace(own, seconds=2.5) for own in calls)
    assert reward_waits(naive, 1, 0, 1) == [3.0]  # from 2.0 to 5.0


def test_the_shape_is_said_in_a_line() -> None:
    assert shape(plan_of(workload(batch(*TWO_RANKS)))) == (
        "prompts of 8.0 tokens in the mean, responses of 7.2, the longest 20 and 2.76 times the"
        " mean of its batch, 25.0% cut at 20"
    )


# ---------------------------------------------------------------- waits


def waiting(*calls: PlannedCall, shares: int = 1) -> PlannedBatch:
    return PlannedBatch(1, (), calls, shares)


def test_calls_in_turn_wait_for_as_long_as_they_took() -> None:
    made = waiting(PlannedCall(0, 0, 2.0, 1.0), PlannedCall(1, 0, 0.5, 3.5))
    assert reward_waits(made, 2, 0, 1) == [2.0, 0.5]


def test_what_ran_during_the_rollout_is_not_waited_for_again() -> None:
    made = waiting(PlannedCall(0, 0, 2.0, -1.5), PlannedCall(0, 0, 1.0, -5.0))
    assert reward_waits(made, 1, 0, 1) == [0.5]


def test_samples_that_were_verified_at_once_are_waited_for_at_once() -> None:
    made = waiting(*(PlannedCall(0, 0, 2.0 + row, 0.0, row) for row in range(3)))
    assert reward_waits(made, 1, 0, 1) == [4.0]


def test_functions_at_the_same_time_keep_their_own_time_where_they_can_run_so() -> None:
    made = waiting(PlannedCall(0, 0, 3.0, 0.0), PlannedCall(1, 0, 2.0, 0.5))
    plan = replace(plan_of(workload(batch(*TWO_RANKS))), batches=(made,))
    assert concurrent_functions(plan) == {0, 1}
    assert reward_waits(made, 2, 0, 1, {0, 1}) == [3.0, 2.0]
    assert reward_waits(made, 2, 0, 1) == [3.0, 0.0]


def test_another_number_of_ranks_waits_for_the_slowest() -> None:
    made = waiting(PlannedCall(0, 0, 2.0), PlannedCall(0, 1, 5.0), shares=2)
    assert [reward_waits(made, 1, share, 2) for share in (0, 1)] == [[2.0], [5.0]]
    assert reward_waits(made, 1, 0, 1) == [5.0]


# ---------------------------------------------------------------- what was done


def test_a_batch_is_done_once_every_share_has_done_it(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    progress.steered("toy")
    for index, share in ((0, 0), (0, 1), (1, 0)):
        progress.done(index, share, 2)
    with (tmp_path / "torn.jsonl").open("w") as file:
        file.write('["done",1,1')
    outcome = read_outcome(tmp_path)
    assert (set(outcome.frameworks), set(outcome.done)) == ({"toy"}, {0})
    assert outcome.failures == ()


def test_a_row_waits_while_any_of_its_calls_ran_during_the_rollout_too() -> None:
    made = waiting(
        PlannedCall(0, 0, 2.0, -5.0, row=0),
        PlannedCall(1, 0, 2.0, -4.0, row=0),
        PlannedCall(0, 0, 1.0, row=1),
        PlannedCall(1, 0, 0.5, row=1),
        PlannedCall(0, 0, 9.0, 1.0),
    )
    assert row_waits(made) == {0: 3.0, 1: 1.5}
