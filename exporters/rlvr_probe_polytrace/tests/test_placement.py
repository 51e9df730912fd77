"""Where groups go: true engines where PolyTrace can say them, folded ones where it cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rlvr_probe_polytrace.tests.workloads import (
    batch,
    lines,
    manifest,
    packed,
    read_back,
    simple,
    truth,
    workload,
    write,
)

# rows per rank, group size -> data-parallel rank of each group
LAYOUTS = {
    "one rank": ((16,), 4, [0, 0, 0, 0]),
    "two ranks with whole groups": ((8, 8), 4, [0, 0, 1, 1]),
    "one group straddles two ranks": ((4, 4), 8, [0]),
    "four ranks, groups straddle pairs": ((4, 4, 4, 4), 8, [0, 1]),
    "eight ranks, groups straddle pairs": ((4,) * 8, 8, [0, 1, 2, 3]),
    "three groups on four ranks": ((3, 3, 3, 3), 4, [0, 1, 2]),
    "unequal shares fold into one": ((6, 6), 4, [0, 0, 0]),
    "unequal shares fold by pairs": ((8, 4, 8, 4), 4, [0, 0, 0, 1, 1, 1]),
    "an idle rank": ((8, 0), 4, [0, 0]),
    "three unequal ranks": ((4, 8, 12), 4, [0, 0, 0, 1, 1, 1]),
    "primes": ((12, 8, 8), 4, [0] * 7),
}


@pytest.mark.parametrize(("rows", "n", "expected"), LAYOUTS.values(), ids=LAYOUTS)
def test_groups_are_placed(
    rows: tuple[int, ...], n: int, expected: list[int], tmp_path: Path
) -> None:
    made = simple(rows=rows, n=n, batches=2)
    directory = write(made, tmp_path / "w")
    for step in range(2):
        assert [one["dp_rank"] for one in packed(directory, step)] == expected
    assert read_back(directory, 2) == truth(made)
    assert manifest(directory)["parallelism"]["dp_size"] == len(set(expected))


@pytest.mark.parametrize(("rows", "n", "expected"), LAYOUTS.values(), ids=LAYOUTS)
def test_the_true_rank_of_every_sample_is_kept(
    rows: tuple[int, ...], n: int, expected: list[int], tmp_path: Path
) -> None:
    directory = write(simple(rows=rows, n=n, batches=1), tmp_path / "w")
    found = [rank for one in packed(directory, 0) for rank in one["x_rlvr"]["engine_id"]]
    assert found == [rank for rank, count in enumerate(rows) for _ in range(count)]


def test_folding_is_said(tmp_path: Path) -> None:
    found = manifest(write(simple(rows=(6, 6), n=4), tmp_path / "w"))
    assert found["parallelism"]["dp_of_engine"] == {"0": 0, "1": 0}
    assert "2 engines are folded into 1" in found["parallelism"]["dp_reason"]
    assert any("folded" in note for note in found["notes"])


def test_nothing_is_said_where_nothing_is_folded(tmp_path: Path) -> None:
    found = manifest(write(simple(rows=(8, 8), n=4), tmp_path / "w"))
    assert found["parallelism"]["dp_reason"] is None
    assert found["notes"] == []


def test_the_placement_fits_every_batch(tmp_path: Path) -> None:
    made = workload([batch(0, (8, 8), 4), batch(1, (12, 4), 4)])
    directory = write(made, tmp_path / "w")
    assert {one["dp_rank"] for step in (0, 1) for one in packed(directory, step)} == {0}
    assert read_back(directory, 2) == truth(made)


def test_tensor_parallel_ranks_are_one_engine(tmp_path: Path) -> None:
    made = simple(rows=(4, 4, 4, 4), n=4, rollout_tp=2)
    records = packed(write(made, tmp_path / "w"), 0)
    assert [(one["dp_rank"], one["rank"]) for one in records] == [(0, 0), (0, 0), (1, 2), (1, 2)]
    assert records[1]["x_rlvr"]["engine_id"] == [0, 0, 0, 0]
    assert records[1]["x_rlvr"]["rank"] == [1, 1, 1, 1]


def test_prompts_out_of_rank_order_keep_their_order(tmp_path: Path) -> None:
    made = workload([replace(batch(0, (4, 4), 4), ranks={10: 1, 11: 0})])
    directory = write(made, tmp_path / "w")
    assert read_back(directory, 1) == truth(made)
    assert [one["x_rlvr"]["engine_id"][0] for one in packed(directory, 0)] == [1, 0]


def test_reward_time_of_folded_ranks_is_that_of_the_slowest(tmp_path: Path) -> None:
    directory = write(simple(rows=(4, 4, 4, 4), n=8), tmp_path / "w")
    found = lines(directory / "reward_timings_step_0.jsonl")
    assert [(one["dp_rank"], one["reward_time_s"]) for one in found] == [(0, 0.2), (1, 0.4)]
