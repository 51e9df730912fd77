"""Of a job of many processes nothing is joined with what it does not belong to, whatever is lost.

The books of the job know what really happened; they share nothing with the reader.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlvr_probe.recording import read_run
from tests import today
from tests.actors import SECOND, Job
from tests.property.lost_rows import failures, wrong_joins

HERE = 8
CONFORMANCE = 20
"""Other ones every day."""
FULL = 2_000
JOBS: dict[str, dict[str, Any]] = {
    "V0": {},
    "V0 without uids": {"uids": False, "seed": 1},
    "V1": {"v1": True, "seed": 2},
    "four ranks, groups straddle seven workers": {"ranks": 4, "workers": 7, "seed": 3},
    "a rank that began anew": {"restarted_rank": 3, "seed": 4, "steps": 5},
    "a worker that began anew": {
        "restarted_worker": 3, "uids": False, "seed": 5, "steps": 5, "alike": True,
    },
    "a manager that began anew": {
        "restarted_manager": 3, "uids": False, "seed": 9, "steps": 5, "alike": True,
    },
    "two clocks": {"other_machine": SECOND // 10, "seed": 6},
    "two clocks, far apart": {"other_machine": 20 * SECOND, "v1": True, "seed": 7},
    "two clocks, a rank that began anew": {
        "other_machine": -SECOND // 3, "restarted_rank": 2, "seed": 8,
    },
    "a controller that was killed when all was done": {"killed": True, "seed": 10},
    "the same, a rank that began anew": {"killed": True, "restarted_rank": 3, "seed": 11},
    "the same, two clocks": {"killed": True, "other_machine": SECOND // 5, "seed": 12},
    "two clocks without uids": {"other_machine": SECOND, "uids": False, "restarted_worker": 2},
}  # fmt: skip


@pytest.mark.parametrize("name", today.some(list(JOBS), 4))
def test_what_is_left_is_joined_as_it_was_or_not_at_all(name: str, tmp_path: Path) -> None:
    begin = today.seed() * HERE % FULL
    assert failures(tmp_path, range(begin, begin + HERE), **JOBS[name]) == []


def test_a_call_after_which_all_are_lost_is_not_joined_with_one_of_them(tmp_path: Path) -> None:
    job = JOBS["a rank that began anew"]
    assert failures(tmp_path, [125], **job) == []


@pytest.mark.conformance
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("count", [CONFORMANCE, pytest.param(FULL, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", JOBS)
def test_so_it_is_whatever_is_lost(name: str, count: int, tmp_path: Path) -> None:
    begin = 0 if count == FULL else today.seed() * count % FULL
    assert failures(tmp_path, range(begin, begin + count), **JOBS[name]) == []


@pytest.mark.parametrize(
    "name",
    today.some(
        ["V0", "V0 without uids", "V1", "a controller that was killed when all was done"], 2
    ),
)
def test_of_a_whole_recording_everything_is_joined(name: str, tmp_path: Path) -> None:
    books = Job(tmp_path, **JOBS[name]).write()
    trace = read_run(tmp_path)
    assert list(wrong_joins(trace, books)) == []
    assert (trace.lost, trace.unjoined_rpcs, trace.unreached) == ({}, 0, {})
    batches = [batch for step in trace.steps() for batch in (*step.batches, *step.evaluations)]
    found = [
        trajectory
        for batch in batches
        for group in batch.groups()
        for trajectory in group.trajectories
    ]
    lived = books.trajectories.values()
    assert len(found) == len(lived)
    assert sum(len(result.turns) for result in found) == sum(len(item.turns) for item in lived) > 0
    assert (
        sum(len(result.tool_calls) for result in found)
        == sum(len(item.tools) for item in lived)
        > 0
    )
    assert all(len(result.rewards) == 1 and result.rewards[0].value is not None for result in found)
    assert all(result.engine is not None and result.policy_versions is not None for result in found)
    assert all(result.loss_runs is not None for result in found)
    assert sum(len(step.rpcs) for step in trace.steps()) == len(books.calls) - 1
