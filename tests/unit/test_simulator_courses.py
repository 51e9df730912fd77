"""Faults that have a course: they change what they say, cost what they should, and are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from rlvr_probe.recording import read_run
from tests import today
from tests.simulator import Scenario, scenario, simulate
from tests.simulator.courses import (
    Course,
    Form,
    Lasting,
    LeakingReward,
    RecurringStraggler,
    SlowBetweenSteps,
    SlowCheckpoint,
    SlowData,
    SlowEvaluation,
    SlowHost,
    SlowLogprob,
    SlowRollout,
    SlowUpdate,
    WarmUp,
)
from tests.simulator.draws import SECOND, Draws
from tests.simulator.faults import Fault
from tests.simulator.truth import play
from tests.simulator.wider import WIDER_KINDS, wider_scenario
from tests.unit.test_simulator import SHAPES, by_hand, played, small

EACH = Course("each", (1, 2, 3, 4))
SECOND_STEP = Course("window", (2,))
ALL = SHAPES
STEPWISE = ("trl", "verl")
"""Shapes whose steps do not depend on each other."""

FAULTS: dict[str, tuple[tuple[str, ...], Lasting, set[str]]] = {
    "slow_data": (("trl", "async"), SlowData(9.0, SECOND_STEP), {"overhead.data", "wait.rollout"}),
    "slow_between_steps": (ALL, SlowBetweenSteps(9.0, SECOND_STEP), {"bubble"}),
    "slow_checkpoint": (ALL, SlowCheckpoint(3.0, SECOND_STEP), {"checkpoint"}),
    "slow_evaluation": (STEPWISE, SlowEvaluation(3.0, SECOND_STEP), {"eval"}),
    "slow_rollout": (
        ALL, SlowRollout(3.0, SECOND_STEP),
        {"work.rollout", "wait.rollout", "wait.reward", "eval"},
    ),
    "slow_update": (ALL, SlowUpdate(3.0, SECOND_STEP), {"work.update_actor", "wait.update"}),
    "slow_logprob": (
        STEPWISE, SlowLogprob(3.0, SECOND_STEP),
        {"work.old_logprob", "work.ref_logprob", "wait.update", "wait.reward"},
    ),
    "slow_reward": (ALL, LeakingReward(40.0, SECOND_STEP, 0), {"wait.reward"}),
    "straggler": (
        STEPWISE, RecurringStraggler(4_000.0, SECOND_STEP, ((2, 3, 1), (2, 5, 0))),
        {
            "work.rollout", "wait.rollout", "wait.reward", "work.old_logprob", "work.ref_logprob",
            "work.update_actor", "wait.update",
        },
    ),
    "warm_up": (
        ALL, WarmUp(3.0, Course("window", (1,)), "update"), {"work.update_actor", "wait.update"}
    ),
    "slow_host": (ALL, SlowHost(2.0, SECOND_STEP, 1, (2, 3)), set()),
}  # fmt: skip
"""The shapes that each can be in, one of it in a small run, and what of its step it changes."""

IN_SHAPES = [(shape, kind) for kind, (shapes, _, _) in FAULTS.items() for shape in shapes]


def test_every_kind_is_here() -> None:
    assert tuple(FAULTS) == WIDER_KINDS
    assert [fault.kind for _, fault, _ in FAULTS.values()] == list(WIDER_KINDS)


@pytest.mark.parametrize(
    ("form", "steps", "shares"),
    [
        ("each", (1, 2, 3, 4, 5), [1, 1, 1, 1, 1]),
        ("growth", (1, 2, 3, 4, 5), [0, 0.25, 0.5, 0.75, 1]),
        ("window", (2, 3), [0, 1, 1, 0, 0]),
        ("since", (4, 5), [0, 0, 0, 1, 1]),
        ("now_and_then", (2, 4), [0, 1, 0, 1, 0]),
    ],
)
def test_a_course_says_how_much_is_in_which_step(
    form: Form, steps: tuple[int, ...], shares: list[float]
) -> None:
    course = Course(form, steps)
    assert [course.share(step) for step in range(1, 6)] == shares
    assert course.shares == sum(shares)


def test_the_truth_says_form_category_and_steps() -> None:
    assert SlowData(2.0, EACH).told() == {
        "kind": "slow_data", "size": 2.0, "category": "data", "form": "each",
    }  # fmt: skip
    assert LeakingReward(2.0, Course("since", (3, 4)), 1).told() == {
        "kind": "slow_reward", "size": 2.0, "source": 1, "category": "reward", "form": "since",
        "steps": [3, 4],
    }  # fmt: skip
    assert WarmUp(2.0, SECOND_STEP, "update").told()["category"] == "update"


@pytest.mark.parametrize(("shape", "kind"), IN_SHAPES)
def test_of_size_0_it_changes_nothing_and_more_of_it_costs_more(shape: str, kind: str) -> None:
    fault = FAULTS[kind][1]
    sound = played(small(shape))
    none = played(small(shape, replace(fault, size=0.0)))
    assert none.books.ns == sound.books.ns
    costs = [played(small(shape, replace(fault, size=fault.size * by))).gpu_ns for by in (0.5, 1.0)]
    assert sound.gpu_ns < costs[1]
    if shape != "async":  # what the queue holds by then may make up for it
        assert sound.gpu_ns <= costs[0] < costs[1]


@pytest.mark.parametrize(
    ("shape", "kind"), [(shape, kind) for shape, kind in IN_SHAPES if shape != "async"]
)
def test_it_changes_its_own_part_of_its_own_step(shape: str, kind: str) -> None:
    _, fault, parts = FAULTS[kind]
    with_it = played(small(shape, fault)).books.steps()
    without = played(small(shape)).books.steps()
    changed = Counter[int]()
    for step, held in with_it.items():
        for category, ns in held.items():
            if ns != without[step].get(category, 0):
                changed[step] += 1
                assert category in (parts or held)
    assert set(changed) == set(fault.course.steps)


@pytest.mark.parametrize(("shape", "kind"), today.some(IN_SHAPES, 9))
def test_the_ledger_adds_up_and_the_recording_is_read_whole(
    tmp_path: Path, shape: str, kind: str
) -> None:
    truth = simulate(small(shape, FAULTS[kind][1]), tmp_path / "run")
    assert sum(truth.ledger_ns.values()) == truth.gpus * (truth.end_ns - truth.begin_ns)
    told = dict.fromkeys(("rollout", "reward", "update", "refit"), 0)
    for one in truth.waits:
        told[one["barrier"]] += one["gpu_ns"]
    assert told == {barrier: truth.ledger_ns[f"wait.{barrier}"] for barrier in told}
    assert truth.faults[0]["saved_gpu_ns"] == truth.saved_gpu_ns > 0
    trace = read_run(tmp_path / "run")
    assert trace.lost == {}
    spans = [span for step in trace.steps() for span in step.spans if span.name != "rpc"]
    assert min(span.start_ns for span in spans if span.attributes.get("step")) == truth.begin_ns
    assert max(span.end_ns for span in spans) == truth.end_ns


@pytest.mark.parametrize("shape", STEPWISE)
def test_between_two_steps_nothing_is_recorded(tmp_path: Path, shape: str) -> None:
    def gaps(*faults: Fault) -> list[int]:
        """From the end of a step, with what is behind it, to the next one."""
        folder = tmp_path / f"run-{len(faults)}"
        truth = simulate(small(shape, *faults), folder)
        assert truth.saved_gpu_ns == 3 * 5 * SECOND * 4 * len(faults)
        spans = [
            [span for span in step.spans if span.attributes.get("step")]
            for step in read_run(folder).steps()
            if step.started
        ]
        return [
            min(span.start_ns for span in after) - max(span.end_ns for span in before)
            for before, after in pairwise(spans)
        ]

    assert gaps(SlowBetweenSteps(5.0, EACH)) == [gap + 5 * SECOND for gap in gaps()]


# ---------------------------------------------------------------- worked out by hand


def saved_s(one: Scenario, draws: Draws, fault: Fault) -> float:
    return (play(one, draws, (fault,))[0].gpu_ns - play(one, draws, ())[0].gpu_ns) / SECOND


def test_what_each_costs_by_hand() -> None:
    first = Course("each", (1,))
    one, draws = by_hand("verl", 800, 400, reward_workers=2, checkpoint_every=1)
    # Two GPUs; the update takes 9 s on the slower one, log-probabilities 1 s twice, rollout 10 s.
    assert saved_s(one, draws, SlowUpdate(1.0, first)) == 2 * 9
    assert saved_s(one, draws, SlowLogprob(0.5, first)) == 2 * 2 * 0.5
    assert saved_s(one, draws, SlowRollout(0.2, first)) == 2 * 2
    assert saved_s(one, draws, SlowCheckpoint(2.0, first)) == 2 * 16
    assert saved_s(one, draws, LeakingReward(1.5, first, 0)) == 2 * 3
    assert saved_s(one, draws, SlowBetweenSteps(5.0, first)) == 0
    # 800 tokens more in rollout and on the slower rank.
    assert saved_s(one, draws, RecurringStraggler(1_600.0, first, ((1, 0, 0),))) == 2 * 18


def test_a_slow_host_by_hand() -> None:
    one, draws = by_hand("verl", 800, 400, reward_workers=2, gpus_per_node=1)
    # Its rollout takes 10 s as that of the other one, its verification 4 s, its log-probabilities
    # 2 s twice, its update 10 s instead of the 9 s of the other one.
    slow = SlowHost(1.0, Course("window", (1,)), 1, (1, 1))
    assert saved_s(one, draws, slow) == 2 * (2 + 2 + 1)


# ---------------------------------------------------------------- scenarios


SEEDS = (0, 7, 10, 11, 21, 22, 23, 27, 42, 72)
"""The fewest that have every kind, number of faults and shape."""


@pytest.mark.parametrize(
    "seeds", [SEEDS, pytest.param(range(80), marks=pytest.mark.conformance)], ids=len
)
def test_wider_scenarios_have_every_fault_none_and_two(seeds: Sequence[int]) -> None:
    drawn = [wider_scenario(seed) for seed in seeds]
    faults = [fault for one in drawn for fault in one.faults]
    assert {fault.kind for fault in faults} >= set(WIDER_KINDS)
    assert {len(one.faults) for one in drawn} == {0, 1, 2}
    assert {one.shape for one in drawn} == set(SHAPES)
    assert wider_scenario(7) == drawn[seeds.index(7)]
    assert all(0.005 <= one.costs.data_s <= 0.05 for one in drawn)
    for one in drawn:
        for fault in one.faults:
            if isinstance(fault, Lasting):
                assert one.shape in FAULTS[fault.kind][0]
                assert set(fault.course.steps) <= set(range(1, one.steps + 1))
                assert fault.size > 0


def test_the_scenario_of_a_seed_has_no_fault_with_a_course() -> None:
    drawn = [scenario(seed) for seed in range(100)]
    assert not any(isinstance(fault, Lasting) for one in drawn for fault in one.faults)
    assert {one.costs.data_s for one in drawn} == {0.05}
