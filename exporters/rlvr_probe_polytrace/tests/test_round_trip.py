"""Published workloads, restored and written again, are equal in every field that is exact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlvr_probe_polytrace import PolyTraceExporter
from rlvr_probe_polytrace.plan import make_plan
from rlvr_probe_polytrace.tests.foreign import RUNS, make_up
from rlvr_probe_polytrace.tests.restored import multiturn_workload, packed_workload, step_of
from rlvr_probe_polytrace.tests.workloads import lines, manifest, write
from rlvr_probe_polytrace.turns import flaw_of

from tests.published import WORKLOADS

TOP = {
    "step", "prompt_group_id", "sample_id", "prompt_len", "max_response_len", "max_model_len",
    "finish_reason", "final_response_len", "final_response_attention_len",
    "final_response_loss_len", "response_loss_mask_rle", "turn_count", "tool_call_count",
    "validate",
}  # fmt: skip
TURN = {
    "turn", "generation_prompt_len", "prompt_tokens", "cached_tokens", "max_new_tokens",
    "completion_tokens",
}  # fmt: skip
TOOL = {"turn", "tool_name", "status"}
"""Fields that do not depend on how messages are rendered again, nor on texts."""


@pytest.fixture(params=["published", "made up"])
def search_r1(request: pytest.FixtureRequest, tmp_path: Path) -> list[dict[str, Any]]:
    directory = WORKLOADS / RUNS["search_r1"]
    if request.param == "made up":
        directory = make_up("search_r1", tmp_path / "made-up")
    elif not directory.is_dir():
        pytest.skip("POLYTRACE_DATA: no published workloads there")
    return lines(directory / "multiturn_workload_step_0.jsonl")


def sound(record: dict[str, Any]) -> bool:
    """Whether no turn seems to be missing.

    search_r1 renders every message again, and may then train on more tokens than were generated.
    """
    [group] = multiturn_workload([record]).batches[0].batch.groups()
    return flaw_of(group.trajectories[0], lossy=False) is None


def groups_of(
    records: list[dict[str, Any]], wanted: Callable[[dict[str, Any]], bool]
) -> list[dict[str, Any]]:
    """The groups of which every trajectory is wanted, numbered anew, sorted."""
    bad = {one["prompt_group_id"] for one in records if not wanted(one)}
    good = sorted({one["prompt_group_id"] for one in records} - bad)
    number = {old: new for new, old in enumerate(good)}
    found = [
        one | {"prompt_group_id": number[one["prompt_group_id"]]}
        for one in records
        if one["prompt_group_id"] in number
    ]
    return sorted(found, key=lambda one: (one["prompt_group_id"], one["sample_id"]))


def uncut(record: dict[str, Any]) -> bool:
    """Whether its response is all that there was."""
    return bool(record["final_total_len"] == record["prompt_len"] + record["final_response_len"])


def test_trajectories_come_back_as_they_were(
    search_r1: list[dict[str, Any]], tmp_path: Path
) -> None:
    expected = groups_of(search_r1, sound)
    assert len(expected) >= 0.7 * len(search_r1)
    directory = write(multiturn_workload(expected), tmp_path / "w", keep_names=True)
    found = lines(directory / "multiturn_workload_step_0.jsonl")
    assert len(found) == len(expected)
    for one, true in zip(found, expected, strict=True):
        assert list(one)[:-1] == list(true)
        assert {key: one[key] for key in TOP} == {key: true[key] for key in TOP}
        for turn, was in zip(one["turns"], true["turns"], strict=True):
            assert list(turn) == list(was)
            assert {key: turn[key] for key in TURN} == {key: was[key] for key in TURN}
            assert turn["engine_latency_s"] == pytest.approx(was["engine_latency_s"], abs=1e-9)
            calls = [call for call in true["tool_calls"] if call["turn"] == was["turn"]]
            assert turn["tool_call_count"] == len(calls)
            # A turn whose calls were not made, at the limit of turns, looks like any last one.
            if len(calls) == was["tool_call_count"]:
                assert turn["finish_reason"] == was["finish_reason"]
        for call, was in zip(one["tool_calls"], true["tool_calls"], strict=True):
            assert list(call) == list(was)
            assert {key: call[key] for key in TOOL} == {key: was[key] for key in TOOL}
            assert call["latency_s"] == pytest.approx(was["latency_s"], abs=1e-9)
        assert one["final_total_len"] <= true["final_total_len"]


def test_where_messages_are_not_rendered_again_every_length_comes_back(tmp_path: Path) -> None:
    """As a framework writes it that gives the engine the tokens that it got, and adds to them."""
    records = lines(make_up("search_r1", tmp_path / "m") / "multiturn_workload_step_0.jsonl")
    expected = groups_of(records, uncut)
    assert len(expected) >= 0.5 * len(records)
    made = multiturn_workload(expected)
    directory = write(made, tmp_path / "w", keep_names=True)
    unknown = {entry["field"].rpartition(".")[2] for entry in manifest(directory)["not_known"]}
    assert unknown == {
        "max_model_len", "generated_text_token_len", "tool_call_count", "query_count",
        "response_token_len", "total_results",
    }  # fmt: skip
    for one, true in zip(
        lines(directory / "multiturn_workload_step_0.jsonl"), expected, strict=True
    ):
        del one["x_rlvr"]
        for item in (*one["turns"], *one["tool_calls"], *true["turns"], *true["tool_calls"]):
            for key in ("generated_text_token_len", "response_token_len", "total_results"):
                item.pop(key, None)
            for key in ("engine_latency_s", "latency_s"):
                if key in item:
                    item[key] = pytest.approx(item[key], abs=1e-9)
        assert one == true


@pytest.mark.parametrize("origin", ["published", "made up"])
@pytest.mark.parametrize("kind", ["verl", "rllm"])
def test_lengths_filters_and_reward_times_come_back_as_they_were(
    kind: str, origin: str, tmp_path: Path
) -> None:
    source = WORKLOADS / RUNS[kind]
    if origin == "made up":
        source = make_up(kind, tmp_path / "made-up")
    elif not source.is_dir():
        pytest.skip("POLYTRACE_DATA: no published workloads there")
    made = packed_workload(source)
    directory = write(made, tmp_path / "w")
    for path in source.glob("packed_lengths_step_*.jsonl"):
        assert {placed(one): one["output"] for one in lines(directory / path.name)} == {
            placed(one): one["output"] for one in lines(path)
        }
    for path in source.glob("reward_timings_step_*.jsonl"):
        expected = [
            one | {"reward_time_s": pytest.approx(one["reward_time_s"], abs=1e-9)}
            for one in sorted(lines(path), key=lambda one: one["dp_rank"])
        ]
        assert lines(directory / path.name) == expected
    filters = source / "dapo_filter_indices.jsonl"
    assert filters.exists() == (directory / filters.name).exists()
    if filters.exists():
        assert lines(directory / filters.name) == lines(filters)
    assert [step_of(path) for path in sorted(directory.glob("packed*"))] == list(
        range(len(made.batches))
    )


def placed(record: dict[str, Any]) -> tuple[int, ...]:
    """Where a prompt is, and how long."""
    return tuple(
        record[key] for key in ("step", "dp_rank", "rank", "tp_rank", "local_index", "input")
    )


def test_a_plan_of_a_published_filter_knows_its_target(tmp_path: Path) -> None:
    plan = make_plan(packed_workload(make_up("verl", tmp_path / "m")), keep_names=False)
    assert plan.filter is not None
    assert plan.filter.target == 32
    assert PolyTraceExporter().flavors == ("packed", "multiturn")
