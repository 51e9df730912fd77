"""Placement and reward time of rows that a controller recorded, served by engines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr_probe_polytrace.tests.agents import SECOND
from rlvr_probe_polytrace.tests.workloads import batch, lines, manifest, packed, workload, write

from rlvr_probe.model.batch import RewardCall, Turn
from rlvr_probe.model.workload import WorkloadBatch


def served(
    index: int,
    engines: Sequence[int | None],
    *,
    n: int = 4,
    calls: Sequence[RewardCall] = (),
    **changes: Any,
) -> WorkloadBatch:
    """A batch of the controller whose groups were served by ``engines``, one per group or row."""
    per = 1 if len(engines) % n == 0 and changes.pop("by_row", False) else n
    rows = [engine for engine in engines for _ in range(per)]
    made = batch(index, (len(rows),), n, calls=False)
    [shard] = made.batch.shards
    shard.engines = rows
    shard.end_ns = 0
    for call in calls:
        shard.calls.append(call)
    for name, value in changes.items():
        setattr(made.batch, name, value)
    return made


def prompts(directory: Path, step: int) -> list[str]:
    return [one["x_rlvr"]["prompt_uid"] for one in packed(directory, step)]


def test_prompts_are_written_by_engine_if_each_began_as_many(tmp_path: Path) -> None:
    made = workload([served(0, [1, 0, 0, 1]), served(1, [0, 1, 1, 0, 1, 0])], rollout_tp=2)
    directory = write(made, tmp_path / "w")
    assert prompts(directory, 0) == [f"s0t1b0g{group}" for group in (1, 2, 0, 3)]
    assert prompts(directory, 1) == [f"s0t2b0g{group}" for group in (0, 3, 5, 1, 2, 4)]
    assert [(one["dp_rank"], one["rank"]) for one in packed(directory, 0)] == [
        (0, 0), (0, 0), (1, 2), (1, 2),
    ]  # fmt: skip
    assert "rank" not in packed(directory, 0)[0]["x_rlvr"]
    said = manifest(directory)
    assert said["parallelism"]["prompt_order"] == "by engine"
    assert said["parallelism"]["dp_reason"] is None
    assert any("written by engine" in note for note in said["notes"])


def test_filter_indices_follow_the_written_order(tmp_path: Path) -> None:
    chosen = frozenset({0, 1})
    made = workload([served(0, [1, 0, 0, 1], kept=chosen, used=chosen)])
    directory = write(made, tmp_path / "w")
    [found] = lines(directory / "dapo_filter_indices.jsonl")
    written = prompts(directory, 0)
    assert [written[index] for index in found["used_prompt_indices"]] == ["s0t1b0g1", "s0t1b0g0"]


def test_engines_in_the_order_of_the_prompts_change_nothing(tmp_path: Path) -> None:
    directory = write(workload([served(0, [0, 0, 1, 1])]), tmp_path / "w")
    assert prompts(directory, 0) == [f"s0t1b0g{group}" for group in range(4)]
    assert [one["dp_rank"] for one in packed(directory, 0)] == [0, 0, 1, 1]
    assert manifest(directory)["parallelism"]["prompt_order"] == "of the trainer"


def test_engines_that_began_unequal_numbers_of_groups_are_folded(tmp_path: Path) -> None:
    made = workload([served(0, [1, 0, 0, 1]), served(1, [1, 0, 1, 1])])
    directory = write(made, tmp_path / "w")
    assert prompts(directory, 0) == [f"s0t1b0g{group}" for group in range(4)]
    assert {one["dp_rank"] for step in (0, 1) for one in packed(directory, step)} == {0}
    assert "unequal numbers" in manifest(directory)["parallelism"]["dp_reason"]
    assert packed(directory, 1)[1]["x_rlvr"]["engine_id"] == [0] * 4


def test_an_engine_that_began_no_group_is_not_given_one(tmp_path: Path) -> None:
    rows = [0, 2, 2, 2, 1, 2, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1]
    directory = write(workload([served(0, rows, by_row=True)]), tmp_path / "w")
    assert {one["dp_rank"] for one in packed(directory, 0)} == {0}
    assert packed(directory, 0)[0]["x_rlvr"]["engine_id"] == [0, 2, 2, 2]


def test_a_group_lies_on_the_engine_of_its_first_sample(tmp_path: Path) -> None:
    rows = [1, 0, 0, 0, 0, 1, 1, 1]
    directory = write(workload([served(0, rows, by_row=True)]), tmp_path / "w")
    assert [(one["dp_rank"], one["x_rlvr"]["engine_id"]) for one in packed(directory, 0)] == [
        (0, [0, 1, 1, 1]), (1, [1, 0, 0, 0]),
    ]  # fmt: skip


def test_an_unknown_engine_is_not_taken_for_that_of_the_controller(tmp_path: Path) -> None:
    directory = write(workload([served(0, [0, None, 1, 1])]), tmp_path / "w")
    assert {one["dp_rank"] for one in packed(directory, 0)} == {0}
    assert "engine_id" not in packed(directory, 0)[1]["x_rlvr"]
    assert "unknown" in manifest(directory)["parallelism"]["dp_reason"]


def test_the_rank_of_a_controller_tells_no_engine(tmp_path: Path) -> None:
    """A job of two engines whose rows one process told, without their engines."""
    made = workload([batch(0, (8,), 4, calls=False)], world_size=2)
    directory = write(made, tmp_path / "w")
    assert {one["dp_rank"] for one in packed(directory, 0)} == {0}
    assert all("engine_id" not in one["x_rlvr"] for one in packed(directory, 0))
    assert "unknown" in manifest(directory)["parallelism"]["dp_reason"]
    alone = write(workload([batch(0, (8,), 4, calls=False)], world_size=1), tmp_path / "alone")
    assert packed(alone, 0)[0]["x_rlvr"]["engine_id"] == [0] * 4


def call(row: int | None, begin: float, end: float, process: int = 90) -> RewardCall:
    samples = 16 if row is None else 1
    return RewardCall(process, "f", int(begin * SECOND), int(end * SECOND), samples, row)


def times(directory: Path) -> list[tuple[int, float]]:
    found = lines(directory / "reward_timings_step_0.jsonl")
    return [(one["dp_rank"], one["reward_time_s"]) for one in found]


def test_a_call_of_the_controller_is_waited_for_by_every_rank(tmp_path: Path) -> None:
    made = workload([served(0, [0, 0, 1, 1], calls=[call(None, 1, 3.5, process=10)])])
    assert times(write(made, tmp_path / "w")) == [(0, 2.5), (1, 2.5)]


def test_single_verifications_count_where_their_sample_lies(tmp_path: Path) -> None:
    calls = [call(row, 1 + row / 4, 1.5 + row / 4, 90 + row % 2) for row in range(8)]
    calls += [call(row, 10 + 2 * row, 11 + 2 * row) for row in range(8, 16)]
    made = workload([served(0, [0, 0, 1, 1], calls=calls)])
    assert times(write(made, tmp_path / "w")) == [(0, 2.25), (1, 8.0)]


def test_single_verifications_follow_prompts_that_are_written_by_engine(tmp_path: Path) -> None:
    calls = [call(row, row, row + (0.5 if row < 4 else 0.25)) for row in range(16)]
    made = workload([served(0, [1, 0, 0, 1], calls=calls)])
    assert times(write(made, tmp_path / "w")) == [(0, 2.0), (1, 3.0)]


def generated_until(made: WorkloadBatch, ends: Sequence[float]) -> WorkloadBatch:
    """Whose rollout lies around verification; each row was generated until one of ``ends``, s."""
    [shard] = made.batch.shards
    shard.end_ns = 100 * SECOND
    shard.turns = {
        row: (Turn(0, 4, 4, None, 0, int(end * SECOND)),) for row, end in enumerate(ends)
    }
    return made


def test_what_was_verified_while_others_were_generated_is_time_of_the_rollout(
    tmp_path: Path,
) -> None:
    calls = [call(row, row, row + 0.5) for row in range(8)]
    calls += [call(row, row, row + 2) for row in range(8, 16)]
    # Rank 0 generates until 6.25 s, rank 1 until 20 s: all of its samples but one were scored.
    ends = [0, 1, 2, 3, 4, 5, 6.25, 6, 8, 8, 8, 8, 8, 8, 8, 20]
    calls[15] = call(15, 20, 21.5)
    made = workload([generated_until(served(0, [0, 0, 1, 1], calls=calls), ends)])
    assert times(write(made, tmp_path / "w")) == [(0, 0.75), (1, 1.5)]
    at_once = [call(row, row, row + 0.5) for row in range(16)]
    made = workload([generated_until(served(0, [0, 0, 1, 1], calls=at_once), [30] * 16)])
    assert times(write(made, tmp_path / "none left")) == [(0, 0.0), (1, 0.0)]


def test_a_verification_within_a_rollout_of_unknown_turns_makes_reward_time_unknown(
    tmp_path: Path,
) -> None:
    calls = [call(row, row, row + 0.5) for row in range(16)]
    made = workload([generated_until(served(0, [0, 0, 1, 1], calls=calls), [0] * 15)])
    directory = write(made, tmp_path / "w")
    assert not list(directory.glob("reward_timings*"))
    assert any("is inseparable from their rollout" in note for note in manifest(directory)["notes"])


def test_a_sample_that_nobody_verified_makes_reward_time_unknown(tmp_path: Path) -> None:
    calls = [call(row, row, row + 0.5) for row in range(15)]
    directory = write(workload([served(0, [0, 0, 1, 1], calls=calls)]), tmp_path / "w")
    assert not list(directory.glob("reward_timings*"))
    assert any("no reward timings" in note for note in manifest(directory)["notes"])


def test_a_verification_of_no_known_sample_makes_reward_time_unknown(tmp_path: Path) -> None:
    calls = [call(row, row, row + 0.5) for row in range(16)]
    calls.append(RewardCall(90, "f", 0, SECOND, 1, None))
    made = workload([served(0, [0, 0, 1, 1], calls=calls)])
    assert not list(write(made, tmp_path / "w").glob("reward_timings*"))
