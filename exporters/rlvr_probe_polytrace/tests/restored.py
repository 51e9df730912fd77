"""Workloads made of what PolyTrace's own collectors wrote: as if the run had been recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from rlvr_probe_polytrace.tests.workloads import lines, workload

from rlvr_probe.model.batch import Batch, BatchShard, RewardCall, ToolCall, Turn
from rlvr_probe.model.workload import Iteration, Workload, WorkloadBatch

STATUSES = {"success": "ok", "api_error": "error", "unknown": None}
TP = 4


def multiturn_workload(records: Iterable[Mapping[str, Any]]) -> Workload:
    """One batch of trajectories; every group whole, numbered anew."""
    rows = sorted(records, key=lambda one: (one["prompt_group_id"], one["sample_id"]))
    groups = [list(its) for _, its in groupby(rows, key=lambda one: one["prompt_group_id"])]
    size = len(groups[0])
    shard = BatchShard(
        process=0,
        rank=0,
        offset=0,
        prompt_tokens=[one["prompt_len"] for one in rows],
        response_tokens=[one["final_response_len"] for one in rows],
        truncated=[int(one["finish_reason"] == "length") for one in rows],
        start_ns=0,
        end_ns=10**12,
        turns={row: tuple(map(_turn, one["turns"])) for row, one in enumerate(rows)},
        tool_calls={
            row: tuple(map(_call, one["tool_calls"]))
            for row, one in enumerate(rows)
            if one["tool_calls"]
        },
        loss_runs=[_runs(one["response_loss_mask_rle"]) for one in rows],
    )
    batch = Batch("train", 1, 0, 0, size, len(rows), [shard])
    made = WorkloadBatch(0, 0, batch, {0: 0}, {0: 0})
    cap = rows[0]["max_response_len"]
    return workload(
        [made],
        rollout_tp=TP,
        max_response_tokens=cap,
        max_prompt_tokens=rows[0]["max_model_len"] - cap,
    )


def _turn(one: Mapping[str, Any]) -> Turn:
    return Turn(
        one["turn"],
        one["prompt_tokens"],
        one["completion_tokens"],
        one["cached_tokens"],
        0,
        round(one["engine_latency_s"] * 1e9),
    )


def _call(one: Mapping[str, Any]) -> ToolCall:
    end_ns = round(one["latency_s"] * 1e9)
    return ToolCall(one["turn"], one["tool_name"], STATUSES[one["status"]], None, 0, end_ns)


def _runs(mask: Iterable[Iterable[int]]) -> list[int]:
    """Runs in and out of the loss in turn."""
    found: list[int] = []
    for value, tokens in mask:
        if len(found) % 2 == value:
            found.append(0)
        found.append(tokens)
    return found


def packed_workload(directory: Path) -> Workload:
    """Every step of a run of packed lengths, with its reward times and its filter."""
    chosen = {}
    if (directory / "dapo_filter_indices.jsonl").is_file():
        chosen = {
            one["workload_step"]: one for one in lines(directory / "dapo_filter_indices.jsonl")
        }
    files = sorted(directory.glob("packed_lengths_step_*.jsonl"), key=lambda path: step_of(path))
    batches = [
        _batch(directory, number, step_of(path), chosen.get(step_of(path)))
        for number, path in enumerate(files)
    ]
    iterations = [
        Iteration(tuple(one.index for one in its), 0, (step,), {"step": 1.0, "rollout": 0.5})
        for step, members in groupby(batches, key=lambda one: one.batch.step)
        for its in [list(members)]
    ]
    return workload(
        batches, iterations=iterations, rollout_tp=TP, max_response_tokens=None, world_size=2 * TP
    )


def step_of(path: Path) -> int:
    """Step in a file name."""
    return int(path.stem.rpartition("_")[2])


def _batch(
    directory: Path, number: int, step: int, chosen: Mapping[str, Any] | None
) -> WorkloadBatch:
    records = lines(directory / f"packed_lengths_step_{step}.jsonl")
    records.sort(key=lambda one: (one["dp_rank"], one["local_index"]))
    times = directory / f"reward_timings_step_{step}.jsonl"
    seconds = (
        {one["dp_rank"]: one["reward_time_s"] for one in lines(times)} if times.exists() else {}
    )
    shards: list[BatchShard] = []
    n, rows = len(records[0]["output"]), 0
    for dp, its in groupby(records, key=lambda one: one["dp_rank"]):
        mine = list(its)
        shard = BatchShard(
            process=dp,
            rank=dp * TP,
            offset=rows,
            prompt_tokens=[one["input"] for one in mine for _ in range(n)],
            response_tokens=[length for one in mine for length in one["output"]],
            truncated=None,
            start_ns=None,
            end_ns=None,
        )
        if dp in seconds:
            shard.calls.append(RewardCall(dp, "f", 0, round(seconds[dp] * 1e9), None))
        rows += len(shard.response_tokens)
        shards.append(shard)
    batch = Batch(
        "train",
        number + 1 if chosen is None else chosen["trainer_step"],
        0 if chosen is None else chosen["gen_batch_index"] - 1,
        None,
        n,
        rows,
        shards,
        kept=None if chosen is None else frozenset(chosen["kept_prompt_indices"]),
        used=None if chosen is None else frozenset(chosen["used_prompt_indices"]),
    )
    return WorkloadBatch(number, 0, batch, {}, {})
