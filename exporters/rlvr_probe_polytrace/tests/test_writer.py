"""What is written: lengths in true order, nothing invented, nothing private, always the same."""

from __future__ import annotations

import json
import math
import os
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_polytrace import PolyTraceExporter
from rlvr_probe_polytrace.tests.workloads import (
    batch,
    lines,
    manifest,
    packed,
    read_back,
    shard,
    simple,
    truth,
    workload,
    write,
)

from rlvr_probe.exceptions import WorkloadError
from rlvr_probe.exporter import WorkloadExporter
from rlvr_probe.model.batch import Batch, RewardCall, RewardColumn, Turn
from rlvr_probe.model.reward_calls import RewardCallColumns
from rlvr_probe.model.workload import Iteration, WorkloadBatch

KEYS = [
    "step", "rank", "tp_rank", "dp_rank", "local_index",
    "input", "output", "n_sampling", "validate", "x_rlvr",
]  # fmt: skip


def test_it_is_a_workload_exporter() -> None:
    assert isinstance(PolyTraceExporter(), WorkloadExporter)
    assert PolyTraceExporter.name == "polytrace"


def test_lengths_come_back_in_prompt_order(tmp_path: Path) -> None:
    made = simple(rows=(16,), n=4, batches=3)
    assert read_back(write(made, tmp_path / "w"), 3) == truth(made)


def test_a_record_has_the_keys_of_polytrace_in_its_order(tmp_path: Path) -> None:
    directory = write(simple(), tmp_path / "w")
    for record in lines(directory / "packed_lengths_step_1.jsonl"):
        assert list(record) == KEYS
        assert record["step"] == 1
        assert record["validate"] is False


def test_the_result_is_counted(tmp_path: Path) -> None:
    written = PolyTraceExporter().write(simple(rows=(8, 8), n=4), tmp_path, keep_names=False)
    assert (written.steps, written.groups, written.trajectories) == (2, 8, 32)
    assert written.files == len(list(tmp_path.iterdir()))


def test_the_same_workload_gives_the_same_bytes(tmp_path: Path) -> None:
    first = write(simple(rows=(8, 8)), tmp_path / "a")
    second = write(simple(rows=(8, 8)), tmp_path / "b")
    assert {path.name: path.read_bytes() for path in first.iterdir()} == {
        path.name: path.read_bytes() for path in second.iterdir()
    }


def test_names_of_reward_functions_are_aliased_unless_kept(tmp_path: Path) -> None:
    functions = ("canary_accuracy", "canary_format")
    made = workload([batch(0, (8,), 4, functions=functions)], reward_functions=functions)
    shared = write(made, tmp_path / "shared")
    assert not any(b"canary" in path.read_bytes() for path in shared.iterdir())
    record = packed(shared, 0)[0]
    assert list(record["x_rlvr"]["rewards"]) == ["reward_0", "reward_1"]
    assert manifest(shared)["reward_functions"] == ["reward_0", "reward_1"]
    kept = write(made, tmp_path / "kept", keep_names=True)
    assert list(packed(kept, 0)[0]["x_rlvr"]["rewards"]) == list(functions)


def test_functions_of_one_name_stay_apart(tmp_path: Path) -> None:
    functions = ("<lambda>", "<lambda>")
    one = batch(0, (4,), 4, functions=functions)
    made = workload([one], reward_functions=functions)
    rewards = packed(write(made, tmp_path / "w", keep_names=True), 0)[0]["x_rlvr"]["rewards"]
    columns = one.batch.shards[0].rewards
    assert rewards == {"<lambda>_0": columns[0].values, "<lambda>_1": columns[1].values}


def one_shard(**changes: Any) -> WorkloadBatch:
    """A batch of one group of four on one rank; ``changes`` replace fields of its shard."""
    part = replace(shard(0, 0, [5] * 4, [7, 8, 9, 10], functions=()), **changes)
    return WorkloadBatch(0, 0, Batch("train", 3, 0, 2, 4, 4, [part]), {10: 0}, {10: 4_000_000_000})


def test_the_extension_says_what_is_known(tmp_path: Path) -> None:
    column = RewardColumn("accuracy", 0, [1.0, None, math.nan, -math.inf], [0.5, None, 0.25, 1.0])
    one = one_shard(rewards=[column], truncated=[0, 0, 1, 0])
    record = packed(write(workload([one]), tmp_path / "w"), 0)[0]
    assert record["x_rlvr"] == {
        "v": 1,
        "prompt_uid": "s0t3b0g0",
        "policy_version": 2,
        "trainer_step": 3,
        "engine_id": [0, 0, 0, 0],
        "start_s": [1.0, 1.0, 1.0, 1.0],
        "finish_reason": ["stop", "stop", "length", "stop"],
        "reward": [1.0, None, None, None],
        "verifier": "reward_0",
        "verify_s": [0.5, None, 0.25, 1.0],
        "not_finite": {"reward_0": 2},
    }


def test_the_extension_leaves_out_what_is_unknown(tmp_path: Path) -> None:
    one = one_shard(truncated=None, start_ns=None, rank=None)
    one = replace(one, ranks={}, batch=replace(one.batch, policy_version=None))
    record = packed(write(workload([one]), tmp_path / "w"), 0)[0]
    assert record["x_rlvr"] == {"v": 1, "prompt_uid": "s0t3b0g0", "trainer_step": 3}


def test_times_of_turns_are_kept_where_they_were_recorded(tmp_path: Path) -> None:
    turn = Turn(0, 5, 7, 3, 5_000_000_000, 6_500_000_000)
    record = packed(write(workload([one_shard(turns={0: (turn,)})]), tmp_path / "w"), 0)[0]
    assert record["x_rlvr"]["end_s"] == [2.5, None, None, None]
    assert record["x_rlvr"]["cached_tokens"] == [3, None, None, None]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        (
            {"turns": {2: (Turn(0, 5, 7, 3, 1, 2), Turn(1, 15, 7, 3, 3, 4))}},
            "3 of 4 trajectories have no recorded turn",
        ),
        (
            {"loss_runs": [[7], [4, 2, 1], [7], [0, 7]]},
            "4 of 4 trajectories have no recorded turn",
        ),
    ],
)
def test_trajectories_that_were_not_generated_in_one_go_need_their_turns(
    tmp_path: Path, changes: dict[str, Any], found: str
) -> None:
    with pytest.raises(WorkloadError, match=found):
        write(workload([one_shard(response_tokens=[7, 7, 7, 7], **changes)]), tmp_path / "w")


@pytest.mark.parametrize(
    ("lossy", "changes", "unknown"),
    [
        (True, {}, 4),
        (True, {"turns": {2: (Turn(0, 5, 7, 3, 1, 2),), 3: (Turn(0, 5, 4, 3, 1, 2),)}}, 3),
        (True, {"loss_runs": [[7]] * 4}, 0),
        (False, {"turns": {2: (Turn(0, 5, 7, 3, 1, 2),)}}, 3),
        (False, {}, 0),
    ],
)
def test_trajectories_whose_turns_may_be_missing_are_stated(
    tmp_path: Path, lossy: bool, changes: dict[str, Any], unknown: int
) -> None:
    one = one_shard(response_tokens=[7, 7, 7, 7], **changes)
    notes = manifest(write(workload([one], turns_lossy=lossy), tmp_path / "w"))["notes"]
    said = [note for note in notes if "turns and tool calls may be missing" in note]
    assert len(said) == bool(unknown)
    assert all(f"{unknown} of 4 trajectories" in note for note in said)


def test_a_mask_that_keeps_everything_changes_nothing(tmp_path: Path) -> None:
    masked = one_shard(response_tokens=[7, 7, 7, 7], loss_runs=[[7]] * 4)
    assert packed(write(workload([masked]), tmp_path / "w"), 0)[0]["output"] == [7, 7, 7, 7]


def test_reward_time_is_the_work_of_the_slowest_rank(tmp_path: Path) -> None:
    directory = write(simple(rows=(8, 8), n=4), tmp_path / "w")
    found = lines(directory / "reward_timings_step_0.jsonl")
    assert [one["reward_time_s"] for one in found] == [0.1, 0.2]
    for one in found:
        outputs = [
            length
            for record in packed(directory, 0)
            if record["dp_rank"] == one["dp_rank"]
            for length in record["output"]
        ]
        assert one["batch_size"] == len(outputs)
        assert one["response_sum"] == sum(outputs)
        assert one["response_max"] == max(outputs)
        assert one["response_mean"] == pytest.approx(sum(outputs) / len(outputs))


def test_reward_calls_that_overlap_count_once(tmp_path: Path) -> None:
    seconds = [(1.0, 2.0), (1.5, 2.25), (1.75, 2.0), (3.0, 3.5)]
    calls = RewardCallColumns()
    for start_s, end_s in reversed(seconds):
        calls.append(RewardCall(10, "f", int(start_s * 1e9), int(end_s * 1e9), 4))
    directory = write(workload([one_shard(calls=calls)]), tmp_path / "w")
    assert lines(directory / "reward_timings_step_0.jsonl")[0]["reward_time_s"] == 1.75


def test_no_reward_file_is_written_if_a_batch_has_no_reward_call(tmp_path: Path) -> None:
    made = workload([batch(0, (8,), 4), batch(1, (8,), 4, calls=False)])
    directory = write(made, tmp_path / "w")
    assert not list(directory.glob("reward_timings*"))
    assert manifest(directory)["reward_timings"] is False
    assert any("no reward timings" in note for note in manifest(directory)["notes"])


def test_a_response_of_no_tokens_leaves_its_whole_iteration_out(tmp_path: Path) -> None:
    batches = [batch(index, (8,), 4, step=index // 2 + 1, ordinal=index % 2) for index in range(6)]
    list_of = batches[3].batch.shards[0].response_tokens
    assert isinstance(list_of, list)
    list_of[5] = 0
    iterations = [Iteration((i, i + 1), 0, (i // 2 + 1,), {"step": 1.0}) for i in (0, 2, 4)]
    made = workload(batches, iterations=iterations)
    directory = write(made, tmp_path / "w")
    expected = truth(made)
    assert read_back(directory, 4) == {new: expected[old] for new, old in enumerate((0, 1, 4, 5))}
    found = manifest(directory)
    assert [one["batches"] for one in found["iterations"]] == [[0, 1], [2, 3]]
    assert [one["trainer_step"] for one in found["steps"].values()] == [1, 1, 3, 3]
    empty = [one for one in found["left_out"] if one["reason"] == "empty_response"]
    assert [(one["step"], one["count"]) for one in empty] == [(2, 8), (2, 8)]


def refused(*batches: WorkloadBatch, **changes: Any) -> str:
    with pytest.raises(WorkloadError) as caught:
        PolyTraceExporter().write(workload(batches, **changes), Path("unused"), keep_names=False)
    message = str(caught.value)
    assert "found" in message
    assert "expected" in message
    return message


def test_a_workload_without_batches_is_refused() -> None:
    assert "at least one" in refused()


def test_a_workload_of_empty_responses_only_is_refused() -> None:
    assert "0 tokens" in refused(one_shard(response_tokens=[1, 0, 1, 1]))


def test_a_prompt_of_no_tokens_is_refused() -> None:
    assert "a prompt of 0 tokens" in refused(one_shard(prompt_tokens=[5, 5, 0, 5]))


def test_a_negative_length_is_refused() -> None:
    assert "a response of -1 tokens" in refused(one_shard(response_tokens=[1, -1, 1, 1]))


def test_a_ragged_group_is_refused() -> None:
    one = one_shard(prompt_tokens=[5] * 6, response_tokens=[5] * 6)
    assert "whole groups of 4" in refused(replace(one, batch=replace(one.batch, total=6)))


def test_an_incomplete_batch_is_refused() -> None:
    one = one_shard()
    assert "4 rows" in refused(replace(one, batch=replace(one.batch, total=8)))


def test_rows_with_a_gap_are_refused() -> None:
    assert "from 4" in refused(one_shard(offset=4))


def test_a_group_size_that_changes_is_refused() -> None:
    assert "4 samples per prompt" in refused(one_shard(), group_size=2)


def test_prompts_that_differ_inside_a_group_are_refused(tmp_path: Path) -> None:
    made = workload([one_shard(prompt_tokens=[5, 6, 5, 5])])
    with pytest.raises(WorkloadError, match=r"\[5, 6\] in group 0"):
        PolyTraceExporter().write(made, tmp_path, keep_names=False)


def test_a_cap_that_the_data_contradict_is_left_out(tmp_path: Path) -> None:
    directory = write(workload([one_shard()], max_response_tokens=9), tmp_path / "w")
    assert manifest(directory)["caps"]["response_tokens"] is None
    assert any("cap of 9" in note for note in manifest(directory)["notes"])


def test_the_manifest_maps_steps_and_sums_them_up(tmp_path: Path) -> None:
    made = simple(rows=(8, 8), n=4)
    directory = write(made, tmp_path / "w")
    found = manifest(directory)
    assert found["steps"]["1"] == {
        "session": 0, "trainer_step": 2, "ordinal": 0, "prompts": 4
    }  # fmt: skip
    responses = [n for prompts in truth(made).values() for _, output in prompts for n in output]
    assert found["totals"] == {
        "batches": 2,
        "trainer_steps": 2,
        "groups": 8,
        "trajectories": 32,
        "prompt_tokens": sum(4 * prompt for one in truth(made).values() for prompt, _ in one),
        "response_tokens": sum(responses),
    }
    assert set(found["files"]) == {path.name for path in directory.iterdir()} - {"manifest.json"}
    assert found["left_out"][0]["reason"] == "evaluation"


def test_nothing_of_the_machine_is_in_the_files(tmp_path: Path) -> None:
    text = b"".join(path.read_bytes() for path in write(simple(), tmp_path / "w").iterdir())
    for private in (str(tmp_path), os.uname().nodename, str(Path.home())):
        assert private.encode() not in text


def test_a_large_workload_is_written_fast_and_in_little_memory(tmp_path: Path) -> None:
    made = simple(rows=(1600, 1600), n=8, batches=5)
    begin = time.process_time()
    PolyTraceExporter().write(made, tmp_path, keep_names=False)
    taken = time.process_time() - begin
    assert taken < 5, f"16,000 trajectories took {taken:.1f} s of processor time"
    for path in tmp_path.iterdir():
        path.unlink()
    tracemalloc.start()
    PolyTraceExporter().write(simple(rows=(1600,), n=8, batches=2), tmp_path, keep_names=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * 2**20


def test_step_files_are_recognized_by_name(tmp_path: Path) -> None:
    exporter = PolyTraceExporter()
    assert not exporter.recognizes(tmp_path)
    assert not exporter.recognizes(tmp_path / "absent")
    (tmp_path / "packed_lengths_step_3.jsonl").touch()
    assert exporter.recognizes(tmp_path)


def test_the_suite_config_is_json(tmp_path: Path) -> None:
    config = json.loads((write(simple(), tmp_path / "w") / "suite.yaml").read_text())
    assert config["step_groups"] == "0;1"
