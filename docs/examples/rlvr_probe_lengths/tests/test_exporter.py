"""Every trajectory is in the table, and a table that was changed is found out."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from rlvr_probe_lengths import LengthsExporter

from rlvr_probe.model.batch import Batch, BatchShard
from rlvr_probe.model.workload import Workload, WorkloadBatch

PROMPTS, RESPONSES, CUT = [5, 5, 9, 9], [3, 8, 1, 2], [0, 1, 0, 0]


def workload(cut: list[int] | None) -> Workload:
    shard = BatchShard(0, 0, 0, PROMPTS, RESPONSES, cut, None, None)
    batch = Batch("train", 1, 0, 0, 2, 4, [shard])
    return Workload(
        framework="tinyrl",
        framework_version=None,
        algorithm="grpo",
        engine=None,
        model_type=None,
        world_size=1,
        rollout_tp=1,
        group_size=2,
        max_prompt_tokens=None,
        max_response_tokens=8,
        steps_per_generation=1,
        iterations_per_batch=1,
        accumulation=1,
        reward_functions=(),
        batches=(WorkloadBatch(0, 0, batch, {0: 0}, {0: 0}),),
        iterations=(),
        left_out=(),
        notes=(),
        lost_records=0,
        probe="0",
    )


def test_every_trajectory_is_a_line(tmp_path: Path) -> None:
    written = LengthsExporter().write(workload(CUT), tmp_path, keep_names=False)
    with open(tmp_path / "lengths.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["prompt_tokens"]) for row in rows] == PROMPTS
    assert [int(row["response_tokens"]) for row in rows] == RESPONSES
    assert [int(row["truncated"]) for row in rows] == CUT
    assert (written.groups, written.trajectories) == (2, 4)
    assert LengthsExporter().recognizes(tmp_path)
    assert LengthsExporter().validate(tmp_path) == []


def test_what_is_unknown_is_absent(tmp_path: Path) -> None:
    LengthsExporter().write(workload(None), tmp_path, keep_names=False)
    with open(tmp_path / "lengths.csv", newline="") as file:
        assert {row["truncated"] for row in csv.DictReader(file)} == {""}


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("0,1,1,9,2,0", "0,1,1,9,-2,0", "response_tokens"),
        ("0,1,1,9,2,0", "0,1,1,9,9,0", "response_tokens"),
        ("batch,group", "batch,groups", None),
    ],
)
def test_a_changed_table_is_found_out(tmp_path: Path, old: str, new: str, field: str) -> None:
    LengthsExporter().write(workload(CUT), tmp_path, keep_names=False)
    table = tmp_path / "lengths.csv"
    table.write_text(table.read_text().replace(old, new))
    [problem] = LengthsExporter().validate(tmp_path, response_cap=8)
    assert problem.field == field


def test_a_missing_step_is_missed(tmp_path: Path) -> None:
    LengthsExporter().write(workload(CUT), tmp_path, keep_names=False)
    assert len(LengthsExporter().validate(tmp_path, steps=[0, 3])) == 1
