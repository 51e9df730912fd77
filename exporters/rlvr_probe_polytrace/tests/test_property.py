"""Any workload: what is written is sound, and every length comes back in its place."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlvr_probe_polytrace.tests.agents import agents
from rlvr_probe_polytrace.tests.workloads import (
    lines,
    packed,
    read_back,
    shard,
    truth,
    workload,
    write,
)

from rlvr_probe.model.batch import Batch, BatchShard
from rlvr_probe.model.workload import Workload, WorkloadBatch

lengths = st.integers(1, 2**31 - 1)


@st.composite
def batches(draw: st.DrawFn, index: int, n: int, ranks: int, functions: int) -> WorkloadBatch:
    groups = draw(st.integers(1, 6))
    total = groups * n
    prompts = draw(st.lists(lengths, min_size=groups, max_size=groups))
    responses = draw(st.lists(lengths, min_size=total, max_size=total))
    cuts = sorted(draw(st.lists(st.integers(0, total), min_size=ranks - 1, max_size=ranks - 1)))
    if draw(st.booleans()) and total % ranks == 0:
        cuts = [total // ranks * rank for rank in range(1, ranks)]
    shards: list[BatchShard] = []
    for rank, (first, after) in enumerate(zip([0, *cuts], [*cuts, total], strict=True)):
        rows = range(first, after)
        part = shard(
            rank,
            first,
            [prompts[row // n] for row in rows],
            responses[first:after],
            functions=[f"f{index}" for index in range(functions)],
            calls=draw(st.booleans()),
        )
        shards.append(replace(part, truncated=None) if draw(st.booleans()) else part)
    inner = Batch("train", index + 1, 0, index, n, total, shards)
    known = {10 + rank: rank for rank in range(ranks)} if draw(st.booleans()) else {}
    origin_ns = dict.fromkeys(known, draw(st.integers(0, 10**12)))
    return WorkloadBatch(index, draw(st.integers(0, 1)), inner, known, origin_ns)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    n, ranks, functions = (draw(st.integers(*span)) for span in ((1, 5), (1, 5), (0, 3)))
    count = draw(st.integers(1, 3))
    stages = draw(
        st.dictionaries(st.sampled_from(["step", "rollout", "reward"]), st.floats(), max_size=3)
    )
    return workload(
        [draw(batches(index, n, ranks, functions)) for index in range(count)],
        stages=stages,
        reward_functions=tuple(f"f{index}" for index in range(functions)),
        rollout_tp=draw(st.sampled_from([1, 1, 2])),
        max_response_tokens=draw(st.none() | lengths),
        iterations_per_batch=draw(st.none() | st.integers(1, 3)),
    )


@settings(max_examples=40, deadline=None)
@given(workloads(), st.booleans())
def test_every_workload_is_written_soundly(made: Workload, keep_names: bool) -> None:
    workload_is_sound(made, keep_names)


@pytest.mark.conformance
@settings(max_examples=400, deadline=None)
@given(workloads(), st.booleans())
def test_so_it_is_whatever_the_workload_is(made: Workload, keep_names: bool) -> None:
    workload_is_sound(made, keep_names)


def workload_is_sound(made: Workload, keep_names: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = write(made, Path(folder) / "w", keep_names=keep_names)
        assert read_back(directory, len(made.batches)) == truth(made)
        for one in made.batches:
            ranks = [
                part.process - 10
                for part in one.batch.shards
                for _ in range(len(part.response_tokens))
            ]
            found = [
                rank
                for record in packed(directory, one.index)
                for rank in record["x_rlvr"].get("engine_id", [])
            ]
            assert found == [rank // made.rollout_tp for rank in ranks]


CONVERSATIONS = (st.integers(1, 6), st.integers(1, 5), st.integers(0, 10**6), st.integers(1, 3))


@settings(max_examples=25, deadline=None)
@given(*CONVERSATIONS)
def test_every_conversation_is_written_soundly(
    groups: int, n: int, seed: int, engines: int
) -> None:
    conversation_is_sound(groups, n, seed, engines)


@pytest.mark.conformance
@settings(max_examples=200, deadline=None)
@given(*CONVERSATIONS)
def test_so_it_is_whatever_was_said(groups: int, n: int, seed: int, engines: int) -> None:
    conversation_is_sound(groups, n, seed, engines)


def conversation_is_sound(groups: int, n: int, seed: int, engines: int) -> None:
    made, books = agents(groups, n, seed=seed, engines=engines)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "w"
        flat = all(len(book.turns) == 1 and not book.calls for one in books for book in one)
        write(made, directory)
        if flat:
            return
        for step, of_batch in enumerate(books):
            found = {
                (one["x_rlvr"]["prompt_uid"].rpartition("g")[2], one["sample_id"]): one
                for one in lines(directory / f"multiturn_workload_step_{step}.jsonl")
            }
            for row, book in enumerate(of_batch):
                one = found[str(row // n), row % n]
                assert one["response_loss_mask_rle"] == book.mask
                assert [
                    (turn["generation_prompt_len"], turn["completion_tokens"])
                    for turn in one["turns"]
                ] == [turn[:2] for turn in book.turns]
                assert sum(call["append_len"] for call in one["tool_calls"]) == sum(book.appended)
