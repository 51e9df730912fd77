"""Directories are read back as what they say, and as no more than that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_polytrace import PolyTraceExporter
from rlvr_probe_polytrace.tests.agents import agents
from rlvr_probe_polytrace.tests.foreign import RUNS, copy_published, dump, make_up
from rlvr_probe_polytrace.tests.workloads import lines, packed, simple, write

from rlvr_probe.exceptions import ValidationError
from rlvr_probe.exporter import WorkloadReader
from rlvr_probe.model.batch import Trajectory
from rlvr_probe.model.workload import ReadWorkload
from rlvr_probe.recording.tables import Tables, open_tables
from tests.published import WORKLOADS


def read(directory: Path) -> ReadWorkload:
    return PolyTraceExporter().read(directory)


def asked(tables: Tables, query: str) -> list[tuple[Any, ...]]:
    return tables.sql.execute(query).fetchall()


def samples(given: ReadWorkload) -> Iterator[tuple[int, int, Trajectory]]:
    for one in given.batches:
        for group in one.batch.groups():
            for sample in group.trajectories:
                yield one.number, group.index, sample


@pytest.fixture(params=["published", "made up"])
def source(request: pytest.FixtureRequest) -> str:
    if request.param == "published" and not WORKLOADS.is_dir():
        pytest.skip("POLYTRACE_DATA: no published workloads there")
    return str(request.param)


def made(kind: str, source: str, tmp_path: Path) -> Path:
    directory = tmp_path / kind
    return copy_published(kind, directory) if source == "published" else make_up(kind, directory)


def test_the_format_says_that_it_can_be_read() -> None:
    assert isinstance(PolyTraceExporter(), WorkloadReader)


@pytest.mark.parametrize("kind", [kind for kind in RUNS if kind != "search_r1"])
def test_packed_lengths_are_read_in_the_order_of_the_readers_of_polytrace(
    kind: str, source: str, tmp_path: Path
) -> None:
    directory = made(kind, source, tmp_path)
    given = read(directory)
    steps = sorted(int(path.stem.rpartition("_")[2]) for path in directory.glob("packed*"))
    assert [one.number for one in given.batches] == steps
    expected = [
        (step, group, record["input"], length, record["dp_rank"])
        for step in steps
        for group, record in enumerate(packed(directory, step))
        for length in record["output"]
    ]
    found = [
        (step, group, one.prompt_tokens, one.response_tokens, one.engine)
        for step, group, one in samples(given)
    ]
    assert found == expected
    assert {one.process for _, _, one in samples(given)} == set(given.ranks)
    assert (given.rollout_tp, given.group_size) == (4, 8)


def test_reward_times_of_every_replica_are_in_the_tables(source: str, tmp_path: Path) -> None:
    directory = made("rllm", source, tmp_path)
    expected = [
        (step, one["dp_rank"], one["reward_time_s"], one["batch_size"])
        for step in range(len(list(directory.glob("reward_timings*"))))
        for one in lines(directory / f"reward_timings_step_{step}.jsonl")
    ]
    with open_tables(read(directory)) as tables:
        found = asked(
            tables,
            "SELECT workload_step, process, took_s, samples FROM reward_call"
            " JOIN batch USING (batch_id) ORDER BY batch_id, process",
        )
        moments = "SELECT count(start_ns), count(end_ns) FROM reward_call"
        assert asked(tables, moments) == [(0, 0)]
    assert expected
    assert found == expected


def test_the_filter_says_which_prompts_were_kept_and_used(source: str, tmp_path: Path) -> None:
    directory = made("verl", source, tmp_path)
    records = lines(directory / "dapo_filter_indices.jsonl")
    with open_tables(read(directory)) as tables:
        for word in ("kept", "used"):
            found = asked(
                tables,
                "SELECT workload_step, number, ordinal + 1, grp FROM prompt_group"
                " JOIN batch USING (batch_id) JOIN step USING (step_id)"
                f" WHERE {word} ORDER BY workload_step, grp",
            )
            assert found == [
                (one["workload_step"], one["trainer_step"], one["gen_batch_index"], prompt)
                for one in records
                for prompt in one[f"{word}_prompt_indices"]
            ]


def test_turns_and_tool_calls_are_in_the_tables(source: str, tmp_path: Path) -> None:
    directory = made("search_r1", source, tmp_path)
    records = lines(directory / "multiturn_workload_step_0.jsonl")
    records.sort(key=lambda one: (one["prompt_group_id"], one["sample_id"]))
    statuses = {"success": "ok", "api_error": "error", "unknown": None}
    with open_tables(read(directory)) as tables:
        assert asked(
            tables,
            "SELECT grp, sample, prompt_tokens, response_tokens, loss_tokens, context_tokens,"
            " truncated, process, engine FROM trajectory ORDER BY trajectory_id",
        ) == [
            (
                one["prompt_group_id"], one["sample_id"], one["prompt_len"],
                one["final_response_len"], one["final_response_loss_len"], one["final_total_len"],
                one["finish_reason"] == "length", None, None,
            )
            for one in records
        ]  # fmt: skip
        assert asked(
            tables,
            "SELECT trajectory_id, turn, prompt_tokens, response_tokens, cached_tokens, took_s,"
            " start_ns FROM turn ORDER BY trajectory_id, turn",
        ) == [
            (
                number, turn["turn"], turn["prompt_tokens"], turn["completion_tokens"],
                turn["cached_tokens"], turn["engine_latency_s"], None,
            )
            for number, one in enumerate(records)
            for turn in one["turns"]
        ]  # fmt: skip
        calls = [
            (
                number, call["turn"], call["tool_name"], statuses[call["status"]],
                call["latency_s"], call["append_len"], call["query_count"], None,
            )
            for number, one in enumerate(records)
            for call in one["tool_calls"]
        ]  # fmt: skip
        assert calls
        assert (
            asked(
                tables,
                "SELECT trajectory_id, turn, tool, status, took_s, added_tokens, queries, start_ns"
                " FROM tool_call",
            )
            == calls
        )


def test_what_was_written_comes_back_with_rewards_and_policy_versions(tmp_path: Path) -> None:
    workload = simple((16, 16), n=4, batches=3)
    given = read(write(workload, tmp_path / "w", keep_names=True))
    assert (given.framework, given.algorithm, given.max_response_tokens) == ("trl", "grpo", 4096)
    expected = [
        (
            one.index, one.batch.step, group.index, sample.sample, sample.prompt_tokens,
            sample.response_tokens, sample.truncated, sample.policy_version,
            [(reward.function, reward.value) for reward in sample.rewards],
        )
        for one in workload.batches
        for group in one.batch.groups()
        for sample in group.trajectories
    ]  # fmt: skip
    steps = {one.number: one.batch.step for one in given.batches}
    found = [
        (
            number, steps[number], group, sample.sample, sample.prompt_tokens,
            sample.response_tokens, sample.truncated, sample.policy_version,
            [(reward.function, reward.value) for reward in sample.rewards],
        )
        for number, group, sample in samples(given)
    ]  # fmt: skip
    assert found == expected


def test_a_value_that_stands_for_an_unknown_one_is_unknown(tmp_path: Path) -> None:
    directory = write(agents(seed=3)[0], tmp_path / "w")
    sound = read(directory)
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    fields = {one["field"] for one in manifest["not_known"]}
    assert "tool_calls.query_count" in fields
    assert {one.queries for batch in sound.batches for one in batch.lasting} == {None}
    manifest["not_known"] += [
        {"field": "turns.cached_tokens", "written": 0, "count": 1},
        {"field": "turns.engine_latency_s", "written": 0.0, "count": 1},
    ]
    path.write_text(json.dumps(manifest))
    known = [turn for _, _, one in samples(sound) for turn in one.turns]
    unknown = [turn for _, _, one in samples(read(directory)) for turn in one.turns]
    assert any(turn.cached_tokens == 0 for turn in known)
    assert [turn.cached_tokens or None for turn in known] == [
        turn.cached_tokens for turn in unknown
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"input": 0},
        {"output": []},
        {"output": [1.5]},
        {"output": ["7"]},
        {"step": 7},
        {"dp_rank": None},
        {"x_rlvr": {"v": 99}},
    ],
)
def test_a_record_that_breaks_the_format_is_named_and_nothing_is_read(
    change: dict[str, Any], tmp_path: Path
) -> None:
    directory = make_up("verl-video", tmp_path / "w")
    path = directory / "packed_lengths_step_2.jsonl"
    dump(path, [one | change if at == 3 else one for at, one in enumerate(lines(path))])
    with pytest.raises(ValidationError, match=r"packed_lengths_step_2\.jsonl:4"):
        read(directory)


def test_steps_that_lack_samples_are_named(tmp_path: Path) -> None:
    directory = make_up("search_r1", tmp_path / "w")
    path = directory / "multiturn_workload_step_0.jsonl"
    dump(path, lines(path)[:-3])
    given = read(directory)
    assert given.notes[-1] == "steps that lack samples of some prompts: 0"
    assert not given.batches[0].batch.whole


@pytest.mark.parametrize("names", [[], ["packed_lengths_step_x.jsonl"], ["readme.md"]])
def test_a_directory_without_steps_is_refused(names: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text("{}\n")
    with pytest.raises(ValidationError, match="found no step file"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "path"),
    [("tool_status", [[]], r"x_rlvr\.tool_status\[0\]"), ("kept", 1, r"x_rlvr\.kept")],
)
def test_an_extension_of_another_type_is_named(
    key: str, value: object, path: str, tmp_path: Path
) -> None:
    directory = make_up("search_r1", tmp_path / "w")
    file = directory / "multiturn_workload_step_0.jsonl"
    records = lines(file)
    records[2]["x_rlvr"] = {"v": 1, key: value}
    dump(file, records)
    with pytest.raises(ValidationError, match=rf"multiturn_workload_step_0\.jsonl:3: {path}"):
        read(directory)


@pytest.mark.parametrize(
    ("extension", "path"),
    [
        ({"policy_version_min": [1], "policy_version_max": [1, 1]}, r"x_rlvr\.policy_version_min"),
        ({"engine_id": [0]}, r"x_rlvr\.engine_id"),
    ],
)
def test_a_column_of_another_length_is_named(
    extension: dict[str, object], path: str, tmp_path: Path
) -> None:
    directory = make_up("rllm", tmp_path / "w")
    file = directory / "packed_lengths_step_0.jsonl"
    records = lines(file)
    records[0]["x_rlvr"] = {"v": 1, **extension}
    dump(file, records)
    with pytest.raises(ValidationError, match=path):
        read(directory)
