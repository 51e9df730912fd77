"""How PolyTrace is told to replay: groups, batch sizes, environment, and times to compare with."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_polytrace import replay
from rlvr_probe_polytrace.tests.workloads import (
    STAGES,
    batch,
    manifest,
    simple,
    truth,
    workload,
    write,
)
from rlvr_probe_polytrace.validate_manifest import console_metrics

from rlvr_probe.model.reward_calls import RewardCallColumns
from rlvr_probe.model.workload import Iteration, Workload


def config(directory: Path) -> dict[str, Any]:
    found = json.loads((directory / "suite.yaml").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def log(directory: Path) -> list[str]:
    return (directory / "formal.log").read_text(encoding="utf-8").splitlines()


def test_one_step_per_batch_is_replayed_with_its_reward_time(tmp_path: Path) -> None:
    found = config(write(simple(rows=(8, 8), batches=3), tmp_path / "w"))
    assert found["repo"] == "rllm"
    assert found["step_groups"] == "0;1;2"
    assert found["env"]["WORKLOAD_BENCHMARK_SLEEP_REWARD"] == "1"
    assert found["workload"]["reward_timing_glob"] == "reward_timings_step_*.jsonl"


def test_without_reward_times_it_is_replayed_as_verl(tmp_path: Path) -> None:
    made = workload([batch(0, (8,), 4, calls=False)])
    found = config(write(made, tmp_path / "w"))
    assert found["repo"] == "verl"
    assert "reward_timing_glob" not in found["workload"]
    assert "WORKLOAD_BENCHMARK_SLEEP_REWARD" not in found["env"]


def test_several_batches_of_one_step_form_a_group(tmp_path: Path) -> None:
    batches = [batch(index, (8,), 4, step=index // 2 + 1, ordinal=index % 2) for index in range(4)]
    iterations = [Iteration((0, 1), 0, (1,), STAGES), Iteration((2, 3), 0, (2,), STAGES)]
    directory = write(workload(batches, iterations=iterations), tmp_path / "w")
    found = config(directory)
    assert (found["repo"], found["step_groups"]) == ("verl", "0,1;2,3")
    assert "data.train_batch_size=4 data.gen_batch_size=2 " in found["env"]["REPLAY_OVERRIDES"]
    assert any("without reward time" in one for one in manifest(directory)["replay"]["notes"])
    assert len(log(directory)) == 2


def test_the_real_tool_is_never_called(tmp_path: Path) -> None:
    found = config(write(simple(), tmp_path / "w"))
    assert found["env"]["WORKLOAD_BENCHMARK_LIVE_TOOL"] == "0"


def test_the_replay_gets_the_sizes_that_keep_lengths_and_order(tmp_path: Path) -> None:
    made = simple(rows=(8, 8), n=4, max_prompt_tokens=2048)
    overrides = config(write(made, tmp_path / "w"))["env"]["REPLAY_OVERRIDES"].split()
    assert overrides == [
        "data.train_batch_size=4",
        "data.max_prompt_length=2048",
        "data.max_response_length=4096",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        "actor_rollout_ref.actor.ppo_epochs=1",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    ]


def test_unknown_caps_are_the_longest_lengths(tmp_path: Path) -> None:
    made = simple(max_response_tokens=None)
    overrides = config(write(made, tmp_path / "w"))["env"]["REPLAY_OVERRIDES"]
    longest = max(n for one in truth(made).values() for _, output in one for n in output)
    assert f"data.max_response_length={longest} " in overrides


@pytest.mark.parametrize(("prompts", "written"), [(1, 1), (2, 2), (64, 4)])
def test_a_step_that_updates_several_times_does_so_in_the_replay(
    tmp_path: Path, prompts: int, written: int
) -> None:
    made = simple(rows=(8, 8), n=4, iterations_per_batch=3, prompts_per_update=prompts)
    overrides = config(write(made, tmp_path / "w"))["env"]["REPLAY_OVERRIDES"].split()
    assert "actor_rollout_ref.actor.ppo_epochs=3" in overrides
    assert f"actor_rollout_ref.actor.ppo_mini_batch_size={written}" in overrides


def test_unknown_updates_are_not_made_up(tmp_path: Path) -> None:
    made = simple(rows=(8, 8), n=4, iterations_per_batch=None)
    assert "ppo_" not in config(write(made, tmp_path / "w"))["env"]["REPLAY_OVERRIDES"]


def test_a_reused_batch_keeps_its_updates(tmp_path: Path) -> None:
    iterations = [Iteration((index,), 0, (4 * index + 1, 4 * index + 4), {}) for index in range(2)]
    iterations = [
        Iteration((one.batches), 0, tuple(range(one.steps[0], one.steps[1] + 1)), STAGES)
        for one in iterations
    ]
    made = simple(rows=(8, 8), n=4, iterations=iterations, iterations_per_batch=2)
    overrides = config(write(made, tmp_path / "w"))["env"]["REPLAY_OVERRIDES"]
    assert "ppo_epochs=2" in overrides
    assert "ppo_mini_batch_size=2" in overrides


def test_batches_of_another_size_are_written_but_not_replayed(tmp_path: Path) -> None:
    made = workload([batch(0, (8,), 4), batch(1, (16,), 4), batch(2, (16,), 4)])
    directory = write(made, tmp_path / "w")
    found = config(directory)
    assert (found["repo"], found["step_groups"]) == ("verl", "1;2")
    assert found["workload"]["expected_records_per_step"] == 4
    assert manifest(directory)["replay"]["not_replayed"] == [0]
    assert len(log(directory)) == 2


def test_groups_that_fit_no_environment_variable_are_not_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "_STEP_GROUPS_B", 5)
    directory = write(simple(batches=4), tmp_path / "w")
    assert config(directory)["step_groups"] == "0;1"
    assert manifest(directory)["replay"]["not_replayed"] == [2, 3]
    assert len(log(directory)) == 2


def test_the_formal_log_holds_the_real_times(tmp_path: Path) -> None:
    made = workload([batch(index, (8, 8), 4, calls=False) for index in range(2)])
    directory = write(made, tmp_path / "w")
    assert config(directory)["repo"] == "verl"
    found = [console_metrics(line) for line in log(directory)]
    tokens = [sum(4 * prompt + sum(output) for prompt, output in truth(made)[n]) for n in (0, 1)]
    assert found[1] == {
        "step": 2.0,
        "timing_s/gen": 12.25,
        "timing_s/reward": 0.75,
        "timing_s/old_log_prob": 1.5,
        "timing_s/ref": 1.25,
        "timing_s/adv": 0.000012,
        "timing_s/update_actor": 4.0,
        "timing_s/step": 20.5,
        "perf/total_num_tokens": tokens[1],
    }


def replayed_by_rllm(directory: Path, number: int, made: Workload) -> dict[str, float]:
    """What rllm's timers show of a replay in which everything takes as long as it did.

    Its workers generate and sleep for the reward inside ``gen``; ``adv`` is around both passes of
    log-probabilities; nothing is timed as ``reward``.
    """
    sleeps = {
        line["dp_rank"]: line["reward_time_s"]
        for line in map(
            json.loads, (directory / f"reward_timings_step_{number}.jsonl").read_text().splitlines()
        )
    }
    batch = made.batches[number].batch
    rollouts = {one.rank: ((one.end_ns or 0) - (one.start_ns or 0)) / 1e9 for one in batch.shards}
    # What a rollout stage lasts beyond its slowest rank, the trainer spends around the call.
    around = STAGES["rollout"] - max(rollouts.values())
    return {
        "timing_s/gen": around + max(rollouts[rank] + sleeps[rank] for rank in sleeps),
        "timing_s/old_log_prob": STAGES["old_logprob"],
        "timing_s/ref": STAGES["ref_logprob"],
        "timing_s/adv": sum(STAGES[one] for one in ("old_logprob", "ref_logprob", "advantage")),
        "timing_s/update_actor": STAGES["update_actor"],
        "timing_s/step": STAGES["step"],
    }


@pytest.mark.parametrize("shorter_ns", [0, 150_000_000])
def test_a_perfect_replay_of_rewards_differs_in_nothing(tmp_path: Path, shorter_ns: int) -> None:
    made = simple(rows=(8, 8), n=4)
    for one in made.batches:  # the rank that is rewarded longest may be the first to generate
        shard = one.batch.shards[1]
        calls = [*shard.calls]
        shard.calls = RewardCallColumns()
        for call in calls:
            moved = {"start_ns": call.start_ns - shorter_ns, "end_ns": call.end_ns - shorter_ns}
            shard.calls.append(replace(call, **moved))
        shard.end_ns = (shard.end_ns or 0) - shorter_ns
    directory = write(made, tmp_path / "w")
    assert config(directory)["repo"] == "rllm"
    for number, line in enumerate(log(directory)):
        found = console_metrics(line)
        timed = {name: value for name, value in found.items() if name.startswith("timing_s/")}
        assert timed == pytest.approx(replayed_by_rllm(directory, number, made))


def test_rewards_within_the_rollout_are_in_its_time_already(tmp_path: Path) -> None:
    made = simple(rows=(8,), n=4)
    for one in made.batches:
        one.batch.shards[0].end_ns = (one.batch.shards[0].end_ns or 0) + 10_000_000_000
    found = console_metrics(log(write(made, tmp_path / "w"))[0])
    assert found["timing_s/gen"] == STAGES["rollout"]


def test_what_rllm_does_inside_a_timer_is_known_whole_or_not_at_all(tmp_path: Path) -> None:
    lacking = {name: value for name, value in STAGES.items() if name != "ref_logprob"}
    batches = [batch(index, (8,), 4) for index in range(2)]
    iterations = [Iteration((0,), 0, (1,), STAGES), Iteration((1,), 0, (2,), lacking)]
    directory = write(workload(batches, iterations=iterations), tmp_path / "w")
    found = [console_metrics(line) for line in log(directory)]
    assert ["timing_s/adv" in one for one in found] == [True, False]


def test_the_formal_log_has_plain_decimals(tmp_path: Path) -> None:
    made = workload([batch(0, (8,), 4, calls=False)])
    text = "\n".join(log(write(made, tmp_path / "w")))
    assert "timing_s/adv:0.000012000" in text
    assert "e-" not in text


def test_stages_that_were_not_seen_are_absent_from_the_log(tmp_path: Path) -> None:
    stages = {"rollout": 3.0, "step": 4.0, "reward": float("nan"), "advantage": 0.0}
    found = console_metrics(log(write(simple(stages=stages), tmp_path / "w"))[0])
    assert {key for key in found if "timing" in key} == {"timing_s/gen", "timing_s/step"}


def test_a_step_number_is_never_taken_for_the_time_of_a_step(tmp_path: Path) -> None:
    found = console_metrics(log(write(simple(stages={"rollout": 3.0}), tmp_path / "w"))[0])
    assert found["training/global_step"] == 1.0
    assert "step" not in found


def test_without_stage_times_there_is_no_formal_log(tmp_path: Path) -> None:
    directory = write(simple(stages={}), tmp_path / "w")
    assert not (directory / "formal.log").exists()
    assert "formal_log_path" not in config(directory)


def test_the_environment_block_finds_its_folder(tmp_path: Path) -> None:
    directory = write(simple(), tmp_path / "a 'quoted' folder")
    script = '. "$1" && printf "%s\\n" "$WORKLOAD_PATH" "$WORKLOAD_STEP_GROUPS"'
    run = ["bash", "-euc", script, "-", str(directory / "benchmark.env")]
    found = subprocess.run(run, capture_output=True, text=True, check=True, cwd="/")
    assert found.stdout.splitlines() == [str(directory), "0;1"]


@pytest.mark.parametrize("name", ["suite.yaml", "benchmark.env", "manifest.json"])
def test_configs_hold_no_path_of_the_machine(name: str, tmp_path: Path) -> None:
    text = (write(simple(), tmp_path / "w") / name).read_text(encoding="utf-8")
    assert str(tmp_path) not in text
    assert '": "/' not in text
