"""Workloads made in code, and what PolyTrace's readers would see in the files written from them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_probe_polytrace import PolyTraceExporter

from rlvr_probe.model.batch import Batch, BatchShard, RewardCall, RewardColumn
from rlvr_probe.model.workload import Iteration, LeftOut, Workload, WorkloadBatch

STAGES = {
    "step": 20.5,
    "rollout": 12.25,
    "reward": 0.75,
    "old_logprob": 1.5,
    "ref_logprob": 1.25,
    "advantage": 0.000012,
    "update_actor": 4.0,
    "data": 0.1,
}


def shard(
    rank: int,
    offset: int,
    prompts: Sequence[int],
    responses: Sequence[int],
    *,
    functions: Sequence[str] = ("accuracy",),
    calls: bool = True,
    draw: random.Random | None = None,
) -> BatchShard:
    """The rows of one rank; process ``10 + rank``."""
    draw = draw or random.Random(0)
    start = 5_000_000_000 + rank * 1_000_000
    made = BatchShard(
        process=10 + rank,
        rank=rank,
        offset=offset,
        prompt_tokens=list(prompts),
        response_tokens=list(responses),
        truncated=[int(length % 7 == 0) for length in responses],
        start_ns=start,
        end_ns=start + 2_000_000_000,
    )
    for index, function in enumerate(functions):
        values = [draw.choice([0.0, 1.0, 0.5, None]) for _ in responses]
        made.rewards.append(RewardColumn(function, index, values, None))
        if calls:
            begin = start + 2_000_000_000 + index * 300_000_000
            end = begin + 100_000_000 * (rank + 1)
            made.calls.append(RewardCall(10 + rank, function, begin, end, len(responses)))
    return made


def batch(
    index: int,
    rows: Sequence[int],
    n: int,
    *,
    step: int | None = None,
    ordinal: int = 0,
    functions: Sequence[str] = ("accuracy",),
    calls: bool = True,
    seed: int = 0,
) -> WorkloadBatch:
    """A batch whose rank ``r`` generated ``rows[r]`` consecutive rows."""
    draw = random.Random(f"{seed}/{index}")
    total = sum(rows)
    prompts = [draw.randint(1, 900) for _ in range(-(-total // n))]
    responses = [draw.randint(1, 4000) for _ in range(total)]
    shards, offset = [], 0
    for rank, count in enumerate(rows):
        inside = range(offset, offset + count)
        shards.append(
            shard(
                rank,
                offset,
                [prompts[row // n] for row in inside],
                [responses[row] for row in inside],
                functions=functions,
                calls=calls,
                draw=draw,
            )
        )
        offset += count
    inner = Batch(
        mode="train",
        step=index + 1 if step is None else step,
        ordinal=ordinal,
        policy_version=index,
        group_size=n,
        total=total,
        shards=shards,
    )
    ranks = {10 + rank: rank for rank in range(len(rows))}
    return WorkloadBatch(index, 0, inner, ranks, dict.fromkeys(ranks, 5_000_000_000))


def workload(
    batches: Sequence[WorkloadBatch],
    *,
    iterations: Sequence[Iteration] | None = None,
    stages: Mapping[str, float] | None = None,
    **changes: Any,
) -> Workload:
    """A workload of ``batches``, one trainer step each unless ``iterations`` says otherwise."""
    if iterations is None:
        seconds = STAGES if stages is None else stages
        iterations = [
            Iteration((one.index,), one.session, (one.batch.step,), seconds) for one in batches
        ]
    world = max((len(one.batch.shards) for one in batches), default=1)
    values: dict[str, Any] = {
        "framework": "trl",
        "framework_version": "1.8.0",
        "algorithm": "grpo",
        "engine": "transformers",
        "model_type": "qwen2",
        "world_size": world,
        "rollout_tp": 1,
        "group_size": batches[0].batch.group_size if batches else 4,
        "max_prompt_tokens": None,
        "max_response_tokens": 4096,
        "steps_per_generation": 1,
        "iterations_per_batch": 1,
        "accumulation": 1,
        "reward_functions": ("accuracy",),
        "batches": tuple(batches),
        "iterations": tuple(iterations),
        "left_out": (LeftOut("evaluation", "evaluation", 0, 0, 2, 16),),
        "notes": (),
        "lost_records": 0,
        "probe": "0.1.0",
    }
    return Workload(**(values | changes))


def simple(rows: Sequence[int] = (16,), n: int = 4, batches: int = 2, **changes: Any) -> Workload:
    """Batches of one layout."""
    return workload([batch(index, rows, n) for index in range(batches)], **changes)


def truth(made: Workload) -> dict[int, list[tuple[int, list[int]]]]:
    """(prompt, responses) in prompt order by step, straight from the rows."""
    found: dict[int, list[tuple[int, list[int]]]] = {}
    for one in made.batches:
        prompts = [length for part in one.batch.shards for length in part.prompt_tokens]
        responses = [length for part in one.batch.shards for length in part.response_tokens]
        n = one.batch.group_size
        found[one.index] = [
            (prompts[row], responses[row : row + n]) for row in range(0, len(responses), n)
        ]
    return found


def lines(path: Path) -> list[dict[str, Any]]:
    """Objects of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def suite(directory: Path, name: str = "suite.yaml") -> dict[str, Any]:
    """A suite config."""
    found = json.loads((directory / name).read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def packed(directory: Path, step: int) -> list[dict[str, Any]]:
    """Records of a packed file in the order into which PolyTrace sorts them."""
    records = lines(directory / f"packed_lengths_step_{step}.jsonl")
    return sorted(records, key=lambda one: (one["dp_rank"], one["rank"], one["local_index"]))


def read_back(directory: Path, steps: int) -> dict[int, list[tuple[int, list[int]]]]:
    """What PolyTrace's sort makes of the files, in the form of :func:`truth`."""
    return {
        step: [(one["input"], one["output"]) for one in packed(directory, step)]
        for step in range(steps)
    }


def write(made: Workload, directory: Path, *, keep_names: bool = False) -> Path:
    """Write a workload into a new folder and expect that it is judged sound."""
    directory.mkdir()
    PolyTraceExporter().write(made, directory, keep_names=keep_names)
    assert list(PolyTraceExporter().validate(directory)) == []
    return directory


def manifest(directory: Path) -> dict[str, Any]:
    found = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found
