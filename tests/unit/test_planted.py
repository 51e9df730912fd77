"""What judges the causes of real trainings sees each mistake, and reads what was slept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from rlvr_probe.analysis.causes import Cause
from tests.planted import (
    ASLEEP,
    Planted,
    Slept,
    mistakes,
    read_books,
    saved_by_ranks_s,
    saved_s,
)

SLEEPER = Planted("reward", "keeper", 0.02, steps=(2, 5))
SLEPT = Slept(calls=2, wall_s=2.0, steps=frozenset({2, 5}))

CALLS = """
import asyncio
from planted_sleep import sleep_if_planted, sleep_if_planted_async
for step in range(1, 7):
    sleep_if_planted("reward", "keeper", step)
    sleep_if_planted("reward", "other", step)
    sleep_if_planted("tool", "keeper", step)
asyncio.run(sleep_if_planted_async("reward", "keeper", 5))
sleep_if_planted("reward", "keeper")
"""


GROWING = """
from planted_sleep import is_planted, sleep_if_planted
for step in range(1, 4):
    assert is_planted("rollout", "generate", step) == (step > 1)
    sleep_if_planted("rollout", "generate", step, worked_s=0.5)
"""


def cause(
    kind: str = "slow_reward",
    gpu_s: float = 4.1,
    function: str = "keeper",
    worst: tuple[str, ...] = ("2 calls", "step 5: 1.0 s of all 2 GPUs", "step 2: 1.0 s"),
    half_s: float | None = None,
) -> Cause:
    low, high = (None, None) if half_s is None else (gpu_s - half_s, gpu_s + half_s)
    return Cause(
        kind,
        f"the {kind}",
        gpu_s,
        0.1,
        low,
        high,
        0.5,
        {"function": function},
        {},
        worst,
        "",
        "",
        "",
        natural=kind == "long_tail",
    )


def test_only_what_was_asked_for_sleeps_and_the_book_says_how_long(tmp_path: Path) -> None:
    surroundings = os.environ | {"PYTHONPATH": str(ASLEEP)}
    command = [sys.executable, "-c", CALLS]
    subprocess.run(command, env=surroundings, check=True)
    subprocess.run(command, env=surroundings | SLEEPER.variables(tmp_path / "books"), check=True)
    slept = read_books(tmp_path / "books")
    assert (slept.calls, slept.steps) == (3, frozenset({2, 5}))
    assert slept.wall_s >= 3 * SLEEPER.seconds


@pytest.mark.parametrize(
    ("per", "times"), [("call", [1, 1]), ("step", [2, 3]), ("second", [0.5, 0.5])]
)
def test_a_sleep_may_grow_with_the_steps_or_with_the_work(
    tmp_path: Path, per: Literal["call", "step", "second"], times: list[float]
) -> None:
    planted = Planted("rollout", "generate", 0.02, steps=(2, 3), per=per)
    surroundings = os.environ | {"PYTHONPATH": str(ASLEEP)} | planted.variables(tmp_path)
    subprocess.run([sys.executable, "-c", GROWING], env=surroundings, check=True)
    lines = (path.read_text().splitlines() for path in tmp_path.iterdir())
    book = [json.loads(line) for text in lines for line in text]
    for line, factor in zip(book, times, strict=True):
        assert line["end_ns"] - line["begin_ns"] >= factor * 0.02e9


def test_what_two_slept_at_the_same_time_counts_once(tmp_path: Path) -> None:
    books = {"slept-1.jsonl": [(0, 2), (10, 12)], "slept-2.jsonl": [(1, 3), (11, 12)]}
    for name, slept in books.items():
        lines = [
            {"step": 1, "begin_ns": begin * 10**9, "end_ns": end * 10**9} for begin, end in slept
        ]
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_books(tmp_path) == Slept(4, 5.0, frozenset({1}))


def test_a_step_would_have_gone_on_when_the_next_to_last_of_its_calls_had_ended() -> None:
    times = [(0, 3), (2, 3), (1, 2), (10, 13), (10, 12), (11, 12)]
    calls = [{"start": start * 10**9, "end": end * 10**9} for start, end in times]
    assert saved_s(calls, 3, 3.0) == 0.0 + 1.0
    assert saved_s(calls, 3, 2.0) == 0.0 + 1.0


def test_ranks_would_have_waited_for_the_one_that_is_the_last_without_its_sleep() -> None:
    times = [(0, 5, 7), (0, 6, 6), (1, 11, 13), (1, 10, 10)]
    calls = [
        {"call": call, "worked": worked * 10**9, "end": end * 10**9} for call, worked, end in times
    ]
    assert saved_by_ranks_s(calls) == 1.0 + 2.0


def test_the_right_cause_has_no_mistake() -> None:
    assert mistakes([cause(), cause("long_tail", 9.0)], SLEEPER, SLEPT, 2) == []
    assert mistakes([cause(gpu_s=4.5, half_s=0.6)], SLEEPER, SLEPT, 2) == []
    assert mistakes([cause("long_tail", 9.0)], None, Slept(0, 0.0, frozenset()), 2) == []


def test_where_a_part_of_a_training_is_slow_is_its_kind_alone() -> None:
    planted = Planted("update", "backward", 0.5, steps=(2, 5))
    assert mistakes([cause("slow_update")], planted, SLEPT, 2) == []
    [found] = mistakes([cause("slow_rollout")], planted, SLEPT, 2)
    assert "update backward sleeps, and the slow_rollout" in found


@pytest.mark.parametrize(
    ("causes", "told"),
    [
        ([], "nothing is named"),
        ([cause("slow_tool")], "(slow_tool)"),
        ([cause(function="other")], "(slow_reward)"),
        ([cause(), cause("slow_rank", 1.0)], "the slow_rank, too"),
        ([cause(gpu_s=3.5)], "costs 3.50"),
        ([cause(gpu_s=4.5)], "costs 4.50"),
        ([cause(gpu_s=4.5, half_s=0.4)], "costs 4.50"),
        ([cause(gpu_s=4.5, half_s=1.3)], "costs 4.50"),
        ([cause(worst=("step 5: 1 s", "step 3: 0.9 s"))], "the worst are [5, 3]"),
        ([cause(worst=("2 calls",))], "the worst are []"),
    ],
)
def test_each_mistake_is_seen(causes: list[Cause], told: str) -> None:
    [found] = mistakes(causes, SLEEPER, SLEPT, 2)
    assert told in found


def test_a_training_that_did_not_sleep_proves_nothing() -> None:
    assert mistakes([cause()], SLEEPER, Slept(0, 0.0, frozenset()), 2) == ["nothing slept"]


def test_what_is_named_of_a_sound_training_is_a_mistake() -> None:
    [found] = mistakes([cause("slow_rank")], None, Slept(0, 0.0, frozenset()), 2)
    assert "the slow_rank" in found
