"""Filter indices: what the trainer kept and used, by prompt in written order, and its replay."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_polytrace import PolyTraceExporter
from rlvr_probe_polytrace.tests.agents import agents
from rlvr_probe_polytrace.tests.workloads import (
    STAGES,
    batch,
    lines,
    manifest,
    packed,
    suite,
    truth,
    workload,
    write,
)
from rlvr_probe_polytrace.validate_manifest import console_metrics

from rlvr_probe.model.workload import Iteration, Workload, WorkloadBatch

Chosen = Iterable[int] | None


def filtered(
    *batches: tuple[int, Chosen, Chosen], groups: int = 8, calls: bool = False
) -> Workload:
    """Batches of ``groups`` prompts by (trainer step, kept, used)."""
    made: list[WorkloadBatch] = []
    for index, (step, kept, used) in enumerate(batches):
        ordinal = sum(one.batch.step == step for one in made)
        one = batch(index, (groups * 2, groups * 2), 4, step=step, ordinal=ordinal, calls=calls)
        one.batch.kept = None if kept is None else frozenset(kept)
        one.batch.used = None if used is None else frozenset(used)
        made.append(one)
    steps = sorted({one.batch.step for one in made})
    iterations = [
        Iteration(tuple(one.index for one in made if one.batch.step == step), 0, (step,), STAGES)
        for step in steps
    ]
    return workload(made, iterations=iterations)


TWO_STEPS = (
    (1, [1, 3, 4], [1, 3, 4]),
    (1, [0, 2, 5, 7], [0, 2]),
    (2, [0, 1, 2, 3, 4, 6], [0, 1, 2, 3, 4]),
)


def filters(directory: Path) -> list[dict[str, Any]]:
    return lines(directory / "dapo_filter_indices.jsonl")


def test_each_generation_batch_has_a_line(tmp_path: Path) -> None:
    found = filters(write(filtered(*TWO_STEPS), tmp_path / "w"))
    assert found[1] == {
        "workload_step": 1,
        "trainer_step": 1,
        "gen_batch_index": 2,
        "prompt_count": 8,
        "n_sampling": 4,
        "train_batch_size": 5,
        "num_prompt_in_batch_before": 3,
        "kept_prompt_count": 4,
        "used_prompt_count": 2,
        "kept_prompt_indices": [0, 2, 5, 7],
        "used_prompt_indices": [0, 2],
    }
    assert [(one["trainer_step"], one["gen_batch_index"]) for one in found] == [
        (1, 1), (1, 2), (2, 1),
    ]  # fmt: skip


def test_a_batch_that_was_not_filtered_kept_everything(tmp_path: Path) -> None:
    made = filtered((1, [0, 1], [0, 1]), (2, None, None))
    found = filters(write(made, tmp_path / "w"))
    assert found[1]["kept_prompt_indices"] == found[1]["used_prompt_indices"] == list(range(8))


def test_without_a_filter_there_is_no_file(tmp_path: Path) -> None:
    directory = write(filtered((1, None, None)), tmp_path / "w")
    assert not (directory / "dapo_filter_indices.jsonl").exists()
    assert manifest(directory)["filter_indices"] is False


def untold(made: Workload, *numbers: int) -> Workload:
    for number in numbers:
        made.batches[number].batch.unselected = True
    return made


def test_a_filter_of_which_nothing_is_known_is_not_said_to_have_passed_all(tmp_path: Path) -> None:
    made = untold(filtered((1, None, None), (2, None, None)), 0, 1)
    directory = write(made, tmp_path / "w")
    assert not (directory / "dapo_filter_indices.jsonl").exists()
    assert any("reported no selection" in note for note in manifest(directory)["notes"])
    # A replay trains on all of them, and takes another time for it.
    timers = [console_metrics(line) for line in (directory / "formal.log").read_text().splitlines()]
    assert [set(one or ()) for one in timers] == [
        {"training/global_step", "timing_s/gen", "timing_s/reward", "perf/total_num_tokens"}
    ] * 2


def test_a_step_whose_selection_is_not_known_is_left_out_where_others_are(tmp_path: Path) -> None:
    made = untold(filtered((1, [0, 1], [0, 1]), (2, None, None)), 1)
    directory = write(made, tmp_path / "w")
    assert [one["trainer_step"] for one in filters(directory)] == [1]
    assert [
        (one["step"], one["reason"], one["count"])
        for one in manifest(directory)["left_out"]
        if one["what"] == "step"
    ] == [(2, "no_selection", 32)]


def test_used_prompts_that_are_not_the_first_kept_stand_for_the_kept(tmp_path: Path) -> None:
    made = filtered((1, [1, 2, 3, 5], [2, 5]), (2, [0, 1], [0, 1]))
    directory = write(made, tmp_path / "w")
    assert [one["kept_prompt_indices"] for one in filters(directory)] == [[2, 5], [0, 1]]
    assert [one["used_prompt_indices"] for one in filters(directory)] == [[2, 5], [0, 1]]
    extensions = [one["x_rlvr"] for one in packed(directory, 0)]
    assert [n for n, one in enumerate(extensions) if one["kept"]] == [1, 2, 3, 5]
    assert [n for n, one in enumerate(extensions) if one["used"]] == [2, 5]
    assert any("not the first that passed" in note for note in manifest(directory)["notes"])


def test_every_group_has_a_launch_with_its_own_steps(tmp_path: Path) -> None:
    directory = write(filtered(*TWO_STEPS), tmp_path / "w")
    assert not (directory / "suite.yaml").exists()
    found = [suite(directory, f"suite_group_{group}.yaml") for group in range(2)]
    assert [one["step_groups"] for one in found] == ["0,1", "2"]
    assert [one["env"]["WORKLOAD_STEPS"] for one in found] == ["0,1", "2"]
    assert {one["repo"] for one in found} == {"verl"}
    assert {one["workload"]["filter_indices_file"] for one in found} == {
        "dapo_filter_indices.jsonl"
    }
    assert len({one["name"] for one in found}) == 2
    assert [one["formal_log_path"] for one in found] == [
        f"$WORKLOAD_PATH/formal_group_{group}.log" for group in range(2)
    ]
    assert len((directory / "formal_group_1.log").read_text().splitlines()) == 1
    assert "data.train_batch_size=5 data.gen_batch_size=8 " in found[0]["env"]["REPLAY_OVERRIDES"]
    assert any("WORKLOAD_STEPS" in note for note in manifest(directory)["replay"]["notes"])


def test_the_block_of_a_group_sets_its_steps(tmp_path: Path) -> None:
    directory = write(filtered(*TWO_STEPS), tmp_path / "w")
    script = '. "$1" && printf "%s\\n" "$WORKLOAD_STEPS" "$WORKLOAD_STEP_GROUPS"'
    run = ["bash", "-euc", script, "-", str(directory / "benchmark_group_0.env")]
    found = subprocess.run(run, capture_output=True, text=True, check=True, cwd="/")
    assert found.stdout.splitlines() == ["0,1", "0,1"]


def test_groups_of_different_batch_sizes_are_all_replayed(tmp_path: Path) -> None:
    made = [
        replace(one, batch=replace(one.batch, kept=frozenset({0}), used=frozenset({0})))
        for one in (batch(0, (8,), 4), batch(1, (16,), 4))
    ]
    directory = write(workload(made), tmp_path / "w")
    assert manifest(directory)["replay"]["not_replayed"] == []
    assert [one["prompts_per_batch"] for one in manifest(directory)["replay"]["launches"]] == [2, 4]


def test_a_launch_of_several_groups_with_a_filter_is_refused(tmp_path: Path) -> None:
    directory = write(filtered(*TWO_STEPS), tmp_path / "w")
    path = directory / "suite_group_0.yaml"
    path.write_text(path.read_text().replace('"step_groups": "0,1"', '"step_groups": "0,1;2"'))
    found = [one for one in PolyTraceExporter().validate(directory) if one.file == path.name]
    assert "step_groups" in {one.field for one in found}


def test_a_launch_that_would_look_up_another_filter_is_refused(tmp_path: Path) -> None:
    directory = write(filtered(*TWO_STEPS), tmp_path / "w")
    path = directory / "suite_group_1.yaml"
    path.write_text(path.read_text().replace('"WORKLOAD_STEPS": "2"', '"WORKLOAD_STEPS": "0"'))
    found = [one for one in PolyTraceExporter().validate(directory) if one.file == path.name]
    assert "env.WORKLOAD_STEPS" in {one.field for one in found}


@pytest.mark.parametrize("used", [True, False])
def test_a_ragged_group_is_left_out_alone(used: bool, tmp_path: Path) -> None:
    one = batch(0, (11,), 4)
    [shard] = one.batch.shards
    # Four groups in the order of the trainer; the first one ended with three samples.
    shard.groups = [0] * 3 + [2] * 4 + [5] * 4
    shard.prompt_tokens = [7] * 3 + [8] * 4 + [9] * 4
    chosen = frozenset({0, 5}) if used else frozenset({5})
    inner = replace(one.batch, total=11, kept=chosen, used=chosen)
    made = workload([replace(one, batch=inner), batch(1, (8,), 4)])
    directory = write(made, tmp_path / "w")
    left = [(one["what"], one["reason"], one["count"]) for one in manifest(directory)["left_out"]]
    assert left[1:] == [("samples", "ragged_group", 3)]
    assert [(one["input"], one["output"]) for one in packed(directory, 0)] == [
        (8, list(shard.response_tokens[3:7])), (9, list(shard.response_tokens[7:])),
    ]  # fmt: skip
    assert filters(directory)[0]["used_prompt_indices"] == [1]
    # Of one that was trained on, a replay cannot do what the run did.
    assert [(directory / f"formal_group_{n}.log").exists() for n in (0, 1)] == [not used, True]
    assert any("lack groups of another size" in n for n in manifest(directory)["notes"]) == used


def uneven(sizes: list[int], index: int) -> WorkloadBatch:
    """A batch of groups of these sizes; four samples were asked for."""
    one = batch(index, (sum(sizes),), 4)
    [shard] = one.batch.shards
    shard.groups = [group for group, size in enumerate(sizes) for _ in range(size)]
    shard.prompt_tokens = [7 + group for group in shard.groups]
    return one


def test_several_outputs_of_one_session_leave_out_their_group_and_not_the_run(
    tmp_path: Path,
) -> None:
    made = workload([uneven([4, 5, 4], 0), uneven([6, 4, 4], 1), uneven([6, 5, 7], 2)])
    directory = write(made, tmp_path / "w")
    left = [(one["what"], one["reason"], one["count"]) for one in manifest(directory)["left_out"]]
    assert left[1:] == [
        ("step", "ragged_group", 18),
        ("samples", "ragged_group", 5),
        ("samples", "ragged_group", 6),
    ]
    assert [len(packed(directory, number)) for number in (0, 1)] == [2, 2]
    assert suite(directory)["step_groups"] == "0;1"
    assert "formal_log_path" not in suite(directory)


def test_where_a_step_is_whole_it_is_replayed_and_those_that_are_not_are_not(
    tmp_path: Path,
) -> None:
    made = workload([uneven([4, 5, 4], 0), uneven([4, 4], 1)])
    directory = write(made, tmp_path / "w")
    assert suite(directory)["step_groups"] == "1"
    assert manifest(directory)["replay"]["not_replayed"] == [0]
    assert len((directory / "formal.log").read_text().splitlines()) == 1


def test_several_trainings_in_one_run_have_no_filter_file(tmp_path: Path) -> None:
    made = filtered((1, [0], [0]), (2, [0], [0]))
    batches = [replace(one, session=one.index) for one in made.batches]
    directory = write(replace(made, batches=tuple(batches)), tmp_path / "w")
    assert not (directory / "dapo_filter_indices.jsonl").exists()
    assert any("no filter indices" in note for note in manifest(directory)["notes"])


def test_a_run_with_turns_has_its_filter_in_the_extension(tmp_path: Path) -> None:
    made, _ = agents(seed=1, batches=1)
    made.batches[0].batch.kept = made.batches[0].batch.used = frozenset({1})
    directory = write(made, tmp_path / "w")
    assert not (directory / "dapo_filter_indices.jsonl").exists()
    found = lines(directory / "multiturn_workload_step_0.jsonl")
    assert [one["x_rlvr"]["used"] for one in found] == [4 <= n < 8 for n in range(16)]
    assert any("trains on every trajectory" in note for note in manifest(directory)["notes"])


def test_lengths_of_prompts_that_were_dropped_are_written_too(tmp_path: Path) -> None:
    made = filtered(*TWO_STEPS)
    directory = write(made, tmp_path / "w")
    found = [(one["input"], one["output"]) for one in packed(directory, 2)]
    assert found == truth(made)[2]
