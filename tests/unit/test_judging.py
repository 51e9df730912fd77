"""The judge says what is right, and what is a false alarm."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import pytest

from tests.seeds import FIXED, add_seeds, seeds_of
from tests.simulator.judging import ALIKE, NOISE, Score, Verdict, judge, told_apart
from tests.simulator.truth import Truth

SECOND = 1_000_000_000


def truth(*faults: dict[str, Any], **scenario: Any) -> Truth:
    whole = {
        "costs": {"rank_sd": 0.005, "sync_s": 2.0, "checkpoint_s": 8.0},
        "lengths": {"tool_s": [1.0, 0.5]},
        "checkpoint_every": 5,
        "sources": ["math", "code"],
        "generated": 42,
    }
    return Truth(
        0, "verl", 10, 0, 100 * SECOND, {"work.weight_sync": 0}, {}, [], 0, 0.5, 0, 0,
        faults=list(faults), scenario=whole | scenario,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "seeds"),
    [("--seeds 3-5", [3, 4, 5]), ("--seeds 7", [7]), ("--seeds 0-499", list(FIXED))],
)
def test_seeds_are_named_alike_for_all_that_is_scored(words: str, seeds: list[int]) -> None:
    parser = argparse.ArgumentParser()
    add_seeds(parser, runs=4)
    assert seeds_of(parser.parse_args(words.split())) == seeds
    drawn = seeds_of(parser.parse_args(["--runs", "9"]))
    assert len(set(drawn)) == 9
    assert not set(drawn) & set(FIXED)
    assert len(seeds_of(parser.parse_args([]))) == 4


def slow(share: float, rank: int = 3, size: float = 0.5) -> dict[str, Any]:
    saved = round(share * 1000 * SECOND)
    return {"kind": "slow_rank", "size": size, "rank": rank, "saved_gpu_ns": saved}


def tool(share: float, size: float = 9.0) -> dict[str, Any]:
    saved = round(share * 1000 * SECOND)
    return {"kind": "slow_tool", "size": size, "source": 1, "saved_gpu_ns": saved}


def test_the_fault_in_its_place_is_right() -> None:
    assert judge(truth(slow(0.2)), [("slow_rank", {"rank": 3}, 100.0)]).outcome == "right"
    assert judge(truth(slow(0.2)), [("slow_rank", {"rank": 2}, 100.0)]).outcome == "wrong"
    assert judge(truth(slow(0.2)), [("slow_tool", {"tool": "math_tool"}, 100.0)]).outcome == "wrong"
    assert judge(truth(slow(0.2)), []).outcome == "missed"


def test_the_one_that_saves_more_comes_first() -> None:
    both = truth(slow(0.2), tool(0.3, size=15.0))
    assert judge(both, [("slow_tool", {"tool": "code_tool"}, 100.0)]).outcome == "right"
    assert judge(both, [("slow_rank", {"rank": 3}, 100.0)]).outcome == "wrong"


def test_what_it_costs_is_told_by_what_it_does() -> None:
    assert judge(truth(slow(0.2)), [("slow_rank", {"rank": 3}, 100.0)]).size == 0.5
    assert judge(truth(slow(0.2)), [("slow_rank", {"rank": 2}, 100.0)]).size is None
    both = [judge(truth(slow(0.2)), [("slow_rank", {"rank": 3}, size)]) for size in (300.0, 100.0)]
    assert Score(both).sizes() == {"slow_rank": [0.5, 1.5]}
    assert "said by true cost 1.50 (0.50 to 1.50)" in Score(both).told()


def test_below_noise_silence_is_right_and_another_name_a_false_alarm() -> None:
    little = truth(slow(NOISE / 2))
    assert judge(little, []).outcome == "silent"
    assert judge(little, [("slow_rank", {"rank": 3}, 100.0)]).outcome == "right"
    assert judge(little, [("straggler", {"batch": 0, "group": 1}, 100.0)]).outcome == "false alarm"
    assert judge(truth(), [("serial_reward", {}, 100.0)]).outcome == "false alarm"


@pytest.mark.parametrize(("seconds", "silent"), [(50, "silent"), (70, "missed")])
def test_a_first_step_takes_longer_in_sound_runs_too(seconds: int, silent: str) -> None:
    first = lasting("warm_up", "window", seconds / 100, steps=[1])
    assert judge(truth(first), []).outcome == silent
    assert judge(truth(first), [("warm_up", {"stage": "update"}, 1.0)]).outcome == "right"
    assert judge(truth(), [("warm_up", {"stage": "update"}, 1.0)]).outcome == "false alarm"


def test_what_cannot_be_told_apart_is_counted_as_well() -> None:
    hidden = truth(tool(0.2, size=3.0))
    verdict = judge(hidden, [])
    assert (verdict.outcome, verdict.expected) == ("silent", "")
    assert (verdict.largest, verdict.found) == ("slow_tool", False)
    assert judge(hidden, [("slow_tool", {"tool": "code_tool"}, 100.0)]).found
    assert Score([verdict]).found() == {"slow_tool": (0, 1)}


def test_clocks_that_differ_have_to_be_named_somewhere() -> None:
    skewed = truth(slow(0.2), {"kind": "clock_skew", "size": 2.0, "saved_gpu_ns": 0})
    rank = ("slow_rank", {"rank": 3}, 100.0)
    assert judge(skewed, [rank, ("clock_skew", {}, 100.0)]).outcome == "right"
    assert judge(skewed, [rank]).outcome == "missed"


@pytest.mark.parametrize(
    ("fault", "clear"),
    [
        (slow(0.2, size=0.5), True),
        (slow(0.2, size=0.03), False),
        (tool(0.2, size=15.0), True),
        (tool(0.2, size=3.0), False),
        ({"kind": "slow_weight_sync", "size": 1.5, "saved_gpu_ns": 1}, True),
        ({"kind": "slow_weight_sync", "size": 0.5, "saved_gpu_ns": 1}, False),
        ({"kind": "straggler", "size": 9_000, "saved_gpu_ns": 200 * SECOND}, True),
        ({"kind": "straggler", "size": 9_000, "saved_gpu_ns": 50 * SECOND}, False),
    ],
)
def test_what_a_run_without_a_fault_may_show_as_well_is_not_told_apart(
    fault: dict[str, Any], clear: bool
) -> None:
    assert told_apart(truth(), fault) == clear


def test_a_straggler_is_one_trajectory_of_one_step() -> None:
    planted = {
        "kind": "straggler", "size": 9_000, "saved_gpu_ns": 300 * SECOND,
        "step": 4, "group_number": 45, "sample": 2,
    }  # fmt: skip
    place = {"step": 4, "batch": 1, "group": 3, "sample": 2}
    assert judge(truth(planted), [("straggler", place, 100.0)]).outcome == "right"
    assert judge(truth(planted), [("straggler", place | {"sample": 3}, 100.0)]).outcome == "wrong"
    # Stragglers of several steps are told by one of these alone.
    assert judge(truth(planted), [("straggler", {"step": 4}, 100.0)]).outcome == "wrong"


def lasting(kind: str, form: str, share: float, **more: Any) -> dict[str, Any]:
    saved = round(share * 1000 * SECOND)
    return {"kind": kind, "form": form, "size": 3.0, "saved_gpu_ns": saved} | more


@pytest.mark.parametrize(
    ("form", "share", "outcome"),
    [
        ("window", 0.02, "missed"),
        ("growth", 0.02, "missed"),
        ("window", NOISE / 2, "silent"),
        ("each", 0.02, "silent"),
        ("each", ALIKE, "missed"),
    ],
)
def test_what_is_in_every_step_alike_is_clear_if_it_costs_more(
    form: str, share: float, outcome: str
) -> None:
    planted = truth(lasting("slow_update", form, share))
    assert judge(planted, []).outcome == outcome
    assert judge(planted, [("slow_update", {}, 100.0)]).outcome == "right"


def test_a_straggler_that_recurs_is_right_in_any_of_its_steps() -> None:
    places = [(4, 45, 2), (6, 3, 1)]
    planted = truth(lasting("straggler", "now_and_then", 0.1, places=places, steps=[4, 6]))
    for where, outcome in (
        ({"step": 4, "batch": 1, "group": 3, "sample": 2}, "right"),
        ({"step": 6, "batch": 0, "group": 3, "sample": 1}, "right"),
        ({"step": 6, "batch": 0, "group": 3, "sample": 2}, "wrong"),
        ({"step": 4, "batch": 0, "group": 3, "sample": 2}, "wrong"),
        ({"step": 6}, "right"),
        ({"step": 5}, "wrong"),
        ({}, "right"),
    ):
        assert judge(planted, [("straggler", where, 100.0)]).outcome == outcome


@pytest.mark.parametrize(
    ("steps", "outcome"),
    [
        ([4, 6, 8, 10], "right"),
        ([2, 4, 6, 8, 10], "right"),  # the run's own tail has step 2
        ([4, 6], "right"),
        ([4], "wrong"),
        ([1, 2, 3, 4, 5, 6, 7], "wrong"),
        ([], "wrong"),
    ],
)
def test_stragglers_that_recur_are_those_of_half_of_the_steps(
    steps: list[int], outcome: str
) -> None:
    places = [(step, 3, 1) for step in (4, 6, 8, 10)]
    fault = lasting("straggler", "now_and_then", 0.1, places=places, steps=[4, 6, 8, 10])
    assert judge(truth(fault), [("straggler", {"steps": steps}, 9.0)]).outcome == outcome


def test_what_has_a_course_is_right_in_its_place() -> None:
    reward = truth(lasting("slow_reward", "growth", 0.1, source=1))
    assert judge(reward, [("slow_reward", {"function": "code_reward"}, 9.0)]).outcome == "right"
    assert judge(reward, [("slow_reward", {"function": "math_reward"}, 9.0)]).outcome == "wrong"
    host = truth(lasting("slow_host", "window", 0.1, node=1))
    assert judge(host, [("slow_host", {"host": "node-2"}, 9.0)]).outcome == "right"
    assert judge(host, [("slow_host", {"host": "node-1"}, 9.0)]).outcome == "wrong"
    assert judge(host, [("slow_host", {}, 9.0)]).outcome == "right"


@pytest.mark.parametrize(
    ("shape", "gpus", "outcome"),
    [
        ("async", (4, 5), "right"),
        ("async", (2, 5), "wrong"),
        ("async", (0, 1), "wrong"),
        ("verl", (4, 5), "wrong"),
    ],
)
def test_of_a_machine_of_the_engine_alone_rollout_may_be_named(
    shape: str, gpus: tuple[int, int], outcome: str
) -> None:
    fault = lasting("slow_host", "window", 0.1, node=1, gpus=gpus)
    run = replace(truth(fault, ranks=4), shape=shape)
    assert judge(run, [("slow_rollout", {"stage": "rollout"}, 9.0)]).outcome == outcome
    assert judge(run, [("slow_update", {"stage": "update"}, 9.0)]).outcome == "wrong"


def test_a_score_counts_what_is_right_by_kind() -> None:
    found = Score(
        [
            Verdict(1, "trl", "right", "slow_rank", ("slow_rank",), "slow_rank"),
            Verdict(2, "trl", "missed", "slow_rank", ("slow_rank",), ""),
            Verdict(3, "trl", "silent", "", ("slow_tool",), ""),
            Verdict(4, "trl", "false alarm", "", (), "straggler"),
        ]
    )
    assert found.right == 0.5
    assert (found.false_alarms, found.false_alarms_clean) == (0.5, 1.0)
    kinds = found.by_kind()
    assert (kinds["slow_rank"], kinds["slow_tool"], kinds["clean"]) == ((1, 2), (1, 1), (0, 1))
    assert found.clear() == {"slow_rank": (1, 2)}
    assert found.precision() == {"slow_rank": (1, 1), "straggler": (0, 1)}
    assert "seed 2 (trl): missed" in found.told()
