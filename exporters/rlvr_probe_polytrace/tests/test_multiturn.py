"""Multi-turn trajectories: every derived length against the books, and what is not known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlvr_probe_polytrace import PolyTraceExporter
from rlvr_probe_polytrace.placement import Placement, PlannedBatch, ReplayCaps
from rlvr_probe_polytrace.tests.agents import Book, agents
from rlvr_probe_polytrace.tests.workloads import lines, manifest, packed, simple, suite, write
from rlvr_probe_polytrace.turns import LossMask, NotKnown, multiturn_records

from rlvr_probe.exceptions import WorkloadError
from rlvr_probe.model.batch import BatchShard, Group, ToolCall, Trajectory, Turn
from rlvr_probe.model.workload import Workload

STATUSES = {"ok": "success", "error": "api_error", "cancelled": "unknown"}


def records(directory: Path, step: int) -> list[dict[str, Any]]:
    return lines(directory / f"multiturn_workload_step_{step}.jsonl")


def shard_of(made: Workload, batch: int = 0) -> BatchShard:
    return made.batches[batch].batch.shards[0]


def expected_turns(book: Book) -> list[dict[str, Any]]:
    return [
        {
            "turn": number,
            "generation_prompt_len": sent,
            "prompt_tokens": sent,
            "cached_tokens": cached,
            "max_new_tokens": min(400, 656 - sent - 1),
            "completion_tokens": generated,
            "assistant_append_len": kept,
            "assistant_loss_len": kept,
            "total_len_after": sent + kept,
            "tool_call_count": sum(call[0] == number for call in book.calls),
            "engine_latency_s": latency,
        }
        for number, (sent, generated, kept, cached, latency) in enumerate(book.turns)
    ]


@given(
    prompt=st.integers(1, 9),
    runs=st.lists(st.integers(0, 5), max_size=8),
    begin=st.integers(0, 60),
    length=st.integers(0, 60),
)
def test_tokens_in_the_loss_are_those_of_the_mask_wherever_it_is_asked(
    prompt: int, runs: list[int], begin: int, length: int
) -> None:
    sample = trajectory(prompt, runs)
    mask = [0] * prompt + [1 - at % 2 for at, run in enumerate(runs) for _ in range(run)]
    assert LossMask(sample).between(begin, begin + length) == sum(mask[begin : begin + length])
    assert LossMask(replace(sample, loss_runs=None)).between(begin, begin + length) is None


class Counted(tuple[int, ...]):
    """Runs that count how often all of them are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[int]:
        type(self).looks += 1
        return super().__iter__()


@pytest.mark.parametrize("turns", [4, 100])
def test_a_trajectory_of_many_turns_is_looked_at_as_often_as_one_of_few(turns: int) -> None:
    batch = simple(rows=(1,), n=1).batches[0]
    runs = Counted([20, 7] * turns)
    sample = replace(
        trajectory(10, runs),
        turns=tuple(Turn(at, 10 + 27 * at, 20, 0, at, at + 1) for at in range(turns)),
        tool_calls=tuple(ToolCall(at, "a", "ok", None, at, at + 1) for at in range(turns)),
        loss_runs=runs,
        process=batch.batch.shards[0].process,
    )

    class Planned(PlannedBatch):
        def groups(self) -> Iterator[Group]:
            yield Group(0, 1, (sample,))

    planned = Planned(batch, range(1))
    Counted.looks = 0
    placement, caps = Placement(1, 1, {}, None), ReplayCaps(10_000, 10_000)
    [record] = multiturn_records(planned, placement, {0: "r"}, {"a": "a"}, {}, caps, {}, NotKnown())
    assert len(record.turns) == turns
    assert 0 < Counted.looks < 12


def trajectory(prompt: int, runs: Sequence[int]) -> Trajectory:
    tokens = sum(runs)
    return Trajectory(
        row=0, sample=0, process=0, prompt_tokens=prompt, response_tokens=tokens, truncated=False,
        policy_version=0, start_ns=0, end_ns=1, rewards=(), turns=(), loss_runs=tuple(runs),
    )  # fmt: skip


def test_every_length_and_time_is_that_of_the_books(tmp_path: Path) -> None:
    made, books = agents(seed=1)
    directory = write(made, tmp_path / "w", keep_names=True)
    for step, of_batch in enumerate(books):
        for one, book in zip(records(directory, step), of_batch, strict=True):
            assert one["prompt_len"] == book.prompt
            assert one["final_response_len"] == book.response
            assert one["final_total_len"] == book.prompt + book.response
            assert one["response_loss_mask_rle"] == book.mask
            assert one["final_response_loss_len"] == sum(turn[2] for turn in book.turns)
            assert one["finish_reason"] == ("length" if book.response == 400 else "stop")
            for turn, expected in zip(one["turns"], expected_turns(book), strict=True):
                assert turn | expected == turn
            assert [
                (call["turn"], call["tool_name"], call["status"], call["latency_s"])
                for call in one["tool_calls"]
            ] == [(turn, tool, STATUSES[status], s) for turn, tool, status, s in book.calls]
            for number, added in enumerate(book.appended):
                calls = [call for call in one["tool_calls"] if call["turn"] == number]
                assert sum(call["append_len"] for call in calls) == added
                assert [call["append_len"] for call in calls][:-1] == [0] * (len(calls) - 1)


def test_groups_are_dense_and_samples_in_order(tmp_path: Path) -> None:
    directory = write(agents(groups=3, n=4)[0], tmp_path / "w")
    assert [(one["prompt_group_id"], one["sample_id"]) for one in records(directory, 1)] == [
        (group, sample) for group in range(3) for sample in range(4)
    ]


def test_what_is_not_known_is_listed_with_what_was_written(tmp_path: Path) -> None:
    made, books = agents(seed=1)
    listed = {
        one["field"]: (one["written"], one["count"])
        for one in manifest(write(made, tmp_path / "w"))["not_known"]
    }
    rows = [book for of_batch in books for book in of_batch]
    calls = sum(len(book.calls) for book in rows)
    turns = sum(len(book.turns) for book in rows)
    assert listed["tool_calls.query_count"] == (1, calls)
    assert listed["tool_calls.response_token_len"] == (0, calls)
    assert listed["tool_calls.total_results"] == (0, calls)
    assert listed["turns.generated_text_token_len"] == (0, turns)
    assert listed["max_model_len"] == (656, len(rows))
    assert "turns.cached_tokens" not in listed
    assert "response_loss_mask_rle" not in listed


def test_an_unknown_count_of_cached_tokens_is_listed_and_not_in_the_extension(
    tmp_path: Path,
) -> None:
    made, _ = agents(seed=1, batches=1)
    shard = shard_of(made)
    shard.turns = {
        row: tuple(replace(turn, cached_tokens=None) for turn in turns)
        for row, turns in shard.turns.items()
    }
    directory = write(made, tmp_path / "w")
    listed = {one["field"]: one["written"] for one in manifest(directory)["not_known"]}
    assert listed["turns.cached_tokens"] == 0
    assert all("cached_tokens" not in one["x_rlvr"] for one in records(directory, 0))


def test_without_a_mask_the_trained_tokens_are_those_generated_and_that_is_listed(
    tmp_path: Path,
) -> None:
    made, books = agents(seed=1, batches=1)
    shard_of(made).loss_runs = None
    directory = write(made, tmp_path / "w")
    assert [one["response_loss_mask_rle"] for one in records(directory, 0)] == [
        book.mask for book in books[0]
    ]
    listed = {one["field"]: one["count"] for one in manifest(directory)["not_known"]}
    assert listed["response_loss_mask_rle"] == sum(len(book.mask) > 1 for book in books[0])


def test_the_extension_says_where_when_and_by_which_weights(tmp_path: Path) -> None:
    made, books = agents(groups=4, engines=2, seed=3, batches=1)
    directory = write(made, tmp_path / "w")
    found = [one["x_rlvr"] for one in records(directory, 0)]
    by_engine = sorted(range(4), key=lambda group: books[0][4 * group].engine)
    assert [one["prompt_uid"] for one in found[::4]] == [f"s0t1b0g{group}" for group in by_engine]
    assert [one["engine_id"] for one in found[::4]] == [0, 0, 1, 1]
    assert [(one["dp_rank"], one["rank"], one["batch_data_id"]) for one in found[::4]] == [
        (0, 0, 0), (0, 0, 1), (1, 1, 0), (1, 1, 1),
    ]  # fmt: skip
    assert {(one["policy_version_min"], one["policy_version_max"]) for one in found} == {(0, 1)}
    assert {one["verify_s"] for one in found} == {0.25}
    assert all(one["start_s"] == one["turn_start_s"][0] == 0.0 for one in found)
    assert all(len(one.get("tool_start_s", ())) == len(one.get("tool_status", ())) for one in found)


def test_names_of_tools_are_aliased_unless_kept(tmp_path: Path) -> None:
    made, _ = agents(seed=1)
    shared = write(made, tmp_path / "shared")
    assert not any(b"canary" in path.read_bytes() for path in shared.iterdir())
    assert {call["tool_name"] for one in records(shared, 0) for call in one["tool_calls"]} == {
        "tool_0", "tool_1",
    }  # fmt: skip
    assert manifest(shared)["redaction"]["aliased"] == ["reward functions", "tools", "data sources"]
    assert (
        b"canary_search"
        in (
            write(made, tmp_path / "kept", keep_names=True) / "multiturn_workload_step_0.jsonl"
        ).read_bytes()
    )


def test_a_tool_of_no_name_is_unknown(tmp_path: Path) -> None:
    made, _ = agents(seed=1, batches=1)
    shard = shard_of(made)
    row, calls = next(iter(shard.tool_calls.items()))
    shard.tool_calls = {**shard.tool_calls, row: (replace(calls[0], tool=None), *calls[1:])}
    directory = write(made, tmp_path / "w")
    assert records(directory, 0)[row]["tool_calls"][0]["tool_name"] == "unknown"
    assert "tool_calls.tool_name" in {one["field"] for one in manifest(directory)["not_known"]}


def test_it_is_replayed_as_search_r1_without_the_real_tools(tmp_path: Path) -> None:
    directory = write(agents(groups=4, n=4, seed=1)[0], tmp_path / "w")
    config = suite(directory)
    assert (config["repo"], config["step_groups"]) == ("search_r1", "0;1")
    assert config["workload"] == {"type": "multiturn", "expected_records_per_step": 16}
    assert config["env"]["WORKLOAD_BENCHMARK_LIVE_TOOL"] == "0"
    assert config["env"]["WORKLOAD_BENCHMARK_SLEEP_TOOL"] == "1"
    assert "actor_rollout_ref.rollout.max_model_len=656" in config["env"]["REPLAY_OVERRIDES"]
    assert manifest(directory)["replay"]["repo"] == "search_r1"
    assert len((directory / "formal.log").read_text().splitlines()) == 2


def test_the_flavor_follows_from_what_was_recorded(tmp_path: Path) -> None:
    made, _ = agents(seed=1)
    assert manifest(write(made, tmp_path / "a"))["flavor"] == "multiturn"
    for batch in made.batches:
        [shard] = batch.batch.shards
        shard.turns = {row: turns[:1] for row, turns in shard.turns.items()}
        shard.tool_calls, shard.loss_runs = {}, None
    assert manifest(write(made, tmp_path / "b"))["flavor"] == "packed"


def test_packed_lengths_of_such_a_run_are_whole_responses_and_say_so(tmp_path: Path) -> None:
    made, books = agents(seed=1, batches=1)
    directory = tmp_path / "w"
    directory.mkdir()
    PolyTraceExporter().write(made, directory, keep_names=False, flavor="packed")
    assert list(PolyTraceExporter().validate(directory)) == []
    found = packed(directory, 0)
    assert [tokens for one in found for tokens in one["output"]] == [
        book.response for book in books[0]
    ]
    assert [tokens for one in found for tokens in one["x_rlvr"]["loss_tokens"]] == [
        sum(turn[2] for turn in book.turns) for book in books[0]
    ]
    said = manifest(directory)
    assert said["response_tokens"].startswith("whole responses")
    foreign = sum(sum(book.appended) for book in books[0])
    assert any(f"with {foreign:,} tokens in" in note for note in said["notes"])


def test_an_unknown_flavor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="one of packed, multiturn"):
        PolyTraceExporter().write(agents()[0], tmp_path, keep_names=False, flavor="vanilla")


def without_turn(number: int) -> Callable[[tuple[Turn, ...]], tuple[Turn, ...]]:
    return lambda turns: tuple(turn for turn in turns if turn.index != number)


def edit(**changes: Any) -> Callable[[tuple[Turn, ...]], tuple[Turn, ...]]:
    return lambda turns: (*turns[:-1], replace(turns[-1], **changes))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda turns: (), "no_turns"),
        (without_turn(0), "missing_turns"),
        (without_turn(1), "missing_turns"),
        (lambda turns: turns[:-1], "missing_turns"),
        (edit(response_tokens=None), "unknown_lengths"),
        (edit(response_tokens=0), "empty_response"),
        (edit(prompt_tokens=1), "shrinking_context"),
        (lambda turns: (replace(turns[0], prompt_tokens=1), *turns[1:]), "other_prompt"),
    ],
)
def test_a_trajectory_whose_turns_are_incomplete_leaves_its_step_out(
    change: Callable[[tuple[Turn, ...]], tuple[Turn, ...]], reason: str, tmp_path: Path
) -> None:
    made, books = agents(seed=1)
    shard = shard_of(made, 1)
    row = next(row for row, book in enumerate(books[1]) if len(book.turns) > 2)
    shard.turns = {**shard.turns, row: change(shard.turns[row])}
    directory = write(made, tmp_path / "w")
    assert not (directory / "multiturn_workload_step_1.jsonl").exists()
    said = manifest(directory)
    assert [(one["step"], one["reason"], one["count"]) for one in said["left_out"]][1:] == [
        (2, reason, len(books[1]))
    ]
    assert any(reason in note for note in said["notes"])


def test_a_last_turn_that_is_missing_is_found_without_a_mask_too(tmp_path: Path) -> None:
    made, books = agents(seed=1)
    shard = shard_of(made, 1)
    shard.loss_runs = None
    row = next(row for row, book in enumerate(books[1]) if len(book.turns) > 2)
    shard.turns = {**shard.turns, row: shard.turns[row][:-1]}
    calls = tuple(call for call in shard.tool_calls[row] if (call.turn or 0) < 0)
    shard.tool_calls = {**shard.tool_calls, row: calls}
    said = manifest(write(made, tmp_path / "w"))
    assert [one["reason"] for one in said["left_out"]][1:] == ["missing_turns"]


def lose_calls(made: Workload, books: list[list[Book]]) -> None:
    shard = shard_of(made, 1)
    row = next(row for row, book in enumerate(books[1]) if len(book.turns) > 2)
    shard.tool_calls = {**shard.tool_calls, row: ()}


def test_what_was_added_without_a_call_is_a_lost_call_where_records_are_missing(
    tmp_path: Path,
) -> None:
    made, books = agents(seed=1, turns_lossy=True)
    lose_calls(made, books)
    said = manifest(write(made, tmp_path / "w"))
    assert [one["reason"] for one in said["left_out"]][1:] == ["missing_turns"]
    assert any("tool calls may be missing" in note for note in said["notes"])


def test_what_was_added_without_a_call_is_of_a_user_where_nothing_is_missing(
    tmp_path: Path,
) -> None:
    made, books = agents(seed=1)
    lose_calls(made, books)
    directory = write(made, tmp_path / "w")
    row = next(row for row, book in enumerate(books[1]) if len(book.turns) > 2)
    one = records(directory, 1)[row]
    assert [turn["generation_prompt_len"] for turn in one["turns"]] == [
        turn[0] for turn in books[1][row].turns
    ]
    assert one["turns"][0]["finish_reason"] == "unknown"
    assert one["tool_calls"] == []


def test_a_run_of_which_no_trajectory_is_whole_is_refused_with_counts(tmp_path: Path) -> None:
    made, books = agents(seed=1)
    for batch in range(2):
        shard_of(made, batch).turns = {}
    with pytest.raises(WorkloadError) as caught:
        PolyTraceExporter().write(made, tmp_path, keep_names=False)
    rows = sum(map(len, books))
    assert f"{rows} of {rows} trajectories have no recorded turn" in str(caught.value)
    assert "the flavor packed" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_recorded_turns_is_not_written_as_if_each_had_one(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="32 of 32 trajectories have no recorded turn"):
        PolyTraceExporter().write(simple(), tmp_path, keep_names=False, flavor="multiturn")


def test_calls_that_ran_at_the_same_time_are_stated(tmp_path: Path) -> None:
    made, _ = agents(seed=1, batches=1)
    shard = shard_of(made)
    row, calls = next(item for item in shard.tool_calls.items() if len(item[1]) > 1)
    late = tuple(ToolCall(one.turn, one.tool, "ok", None, 5, 10) for one in calls)
    shard.tool_calls = {**shard.tool_calls, row: late}
    notes = manifest(write(made, tmp_path / "w"))["notes"]
    assert any("1 trajectories ran at the same time" in note for note in notes)


def test_a_cap_shorter_than_a_turn_is_left_out(tmp_path: Path) -> None:
    made, _ = agents(seed=1, max_response_tokens=10)
    directory = write(made, tmp_path / "w")
    assert manifest(directory)["caps"]["response_tokens"] is None
    assert any("cap of 10" in note for note in manifest(directory)["notes"])


def test_the_same_workload_gives_the_same_bytes(tmp_path: Path) -> None:
    first = write(agents(seed=7)[0], tmp_path / "a")
    second = write(agents(seed=7)[0], tmp_path / "b")
    assert {path.name: path.read_bytes() for path in first.iterdir()} == {
        path.name: path.read_bytes() for path in second.iterdir()
    }
