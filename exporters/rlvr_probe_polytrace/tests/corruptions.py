"""Ways in which a workload goes bad: what is changed, and where it has to be found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_probe_polytrace.tests.foreign import dump
from rlvr_probe_polytrace.tests.workloads import lines

Rows = list[dict[str, Any]]

PACKED = "packed_lengths_step_0.jsonl"
FILTER = "dapo_filter_indices.jsonl"
REWARDS = "reward_timings_step_0.jsonl"
TURNS = "multiturn_workload_step_0.jsonl"


@dataclass(frozen=True, slots=True)
class Corruption:
    """One corrupted copy.

    Attributes:
        name: What is wrong.
        kind: The run it is planted in.
        plant: Changes the copy.
        file: Where it has to be reported.
        line: Line, from 1; None where only the whole file can show it.
        field: Part of the reported field; None if it concerns the line.
        steps: Workload steps that are asked for.
        cap: Cap on a response that is asked for, tokens.
    """

    name: str
    kind: str
    plant: Callable[[Path], object]
    file: str
    line: int | None = None
    field: str | None = None
    steps: tuple[int, ...] | None = None
    cap: int | None = None


def _edit(name: str, change: Callable[[Rows], object]) -> Callable[[Path], None]:
    def plant(directory: Path) -> None:
        rows = lines(directory / name)
        change(rows)
        dump(directory / name, rows)

    return plant


def _set(name: str, row: int, **values: object) -> Callable[[Path], None]:
    return _edit(name, lambda rows: rows[row].update(values))


def _drop(name: str) -> Callable[[Path], None]:
    return _edit(name, lambda rows: rows.pop())


def _append(name: str, text: str) -> Callable[[Path], None]:
    def plant(directory: Path) -> None:
        with (directory / name).open("a", encoding="utf-8") as file:
            file.write(text)

    return plant


def _output(value: object) -> Callable[[Path], None]:
    return _edit(PACKED, lambda rows: rows[3]["output"].__setitem__(0, value))


def _out_of_range(rows: Rows) -> None:
    rows[0]["used_prompt_indices"][-1] = rows[0]["kept_prompt_indices"][-1] = 400


def _without(rows: Rows, *keys: str) -> None:
    for row in rows:
        for key in keys:
            del row[key]


def _used_elsewhere(rows: Rows) -> None:
    kept, used = rows[1]["kept_prompt_indices"], rows[1]["used_prompt_indices"]
    rows[1]["used_prompt_indices"] = [*used[:-1], kept[len(used)]]


def _only_step_1(directory: Path) -> None:
    """What is left of a run of two steps without a filter when the first is lost."""
    for path in directory.iterdir():
        if path.name != "packed_lengths_step_1.jsonl":
            path.unlink()


CORRUPTIONS = [
    Corruption("bad json line", "verl", _append(PACKED, "{oops\n"), PACKED, 97),
    Corruption("empty step file", "verl", lambda d: (d / PACKED).write_bytes(b""), PACKED),
    Corruption("missing step file", "verl", _only_step_1, PACKED, steps=(0, 1)),
    Corruption(
        "key 'input' missing",
        "verl",
        _edit(PACKED, lambda x: x[3].pop("input")),
        PACKED,
        4,
        "input",
    ),
    Corruption(
        "key 'local_index' missing",
        "verl",
        _edit(PACKED, lambda x: _without(x, "local_index")),
        PACKED,
        1,
        "local_index",
    ),
    Corruption("input as string", "verl", _set(PACKED, 3, input="157"), PACKED, 4, "input"),
    Corruption("record step is not the file's", "verl", _set(PACKED, 3, step=1), PACKED, 4, "step"),
    Corruption("validation record", "verl", _set(PACKED, 3, validate=True), PACKED, 4, "validate"),
    Corruption(
        "ragged output group",
        "verl",
        _edit(PACKED, lambda x: x[3]["output"].pop()),
        PACKED,
        4,
        "n_sampling",
    ),
    Corruption("zero-length output", "verl", _output(0), PACKED, 4, "output[0]"),
    Corruption("float output", "verl", _output(45.7), PACKED, 4, "output[0]"),
    Corruption(
        "duplicate local_index", "verl", _set(PACKED, 1, local_index=0), PACKED, None, "local_index"
    ),
    Corruption("one record lost", "verl", _drop(PACKED), PACKED, None, "dp_rank"),
    Corruption("dp_rank not of rank", "verl", _set(PACKED, 50, dp_rank=3), PACKED, None, "dp_rank"),
    Corruption("n_sampling wrong", "verl", _set(PACKED, 3, n_sampling=4), PACKED, 4, "n_sampling"),
    Corruption("output over the cap", "verl", _output(99_999), PACKED, 4, "output", cap=32_768),
    Corruption(
        "filter index out of range",
        "verl",
        _edit(FILTER, _out_of_range),
        FILTER,
        1,
        "kept_prompt_indices",
    ),
    Corruption(
        "filter used is no prefix of kept",
        "verl",
        _edit(FILTER, _used_elsewhere),
        FILTER,
        2,
        "used_prompt_indices",
    ),
    Corruption(
        "filter prompt_count off",
        "verl",
        _set(FILTER, 0, prompt_count=95),
        FILTER,
        1,
        "prompt_count",
    ),
    Corruption("filter bad json", "verl", _append(FILTER, "[1,\n"), FILTER, 7),
    Corruption(
        "filter step twice", "verl", _set(FILTER, 1, workload_step=0), FILTER, 2, "workload_step"
    ),
    Corruption(
        "filter step missing",
        "verl",
        _edit(FILTER, lambda x: x[0].pop("workload_step")),
        FILTER,
        1,
        "workload_step",
    ),
    Corruption(
        "reward negative", "rllm", _set(REWARDS, 0, reward_time_s=-1.0), REWARDS, 1, "reward_time_s"
    ),
    Corruption(
        "reward sums differ", "rllm", _set(REWARDS, 0, response_sum=1), REWARDS, 1, "response_sum"
    ),
    Corruption("reward of one dp missing", "rllm", _drop(REWARDS), REWARDS, None, "dp_rank"),
    Corruption("reward of another step", "rllm", _set(REWARDS, 0, step=7), REWARDS, 1, "step"),
    Corruption(
        "reward as text", "rllm", _set(REWARDS, 0, reward_time_s="77s"), REWARDS, 1, "reward_time_s"
    ),
    Corruption("trajectory lost", "search_r1", _drop(TURNS), TURNS, None, "prompt_group_id"),
    Corruption("sample twice", "search_r1", _set(TURNS, 1, sample_id=0), TURNS, 2, "sample_id"),
    Corruption(
        "turn lost",
        "search_r1",
        _edit(TURNS, lambda x: x[0]["turns"].pop()),
        TURNS,
        1,
        "turn_count",
    ),
    Corruption(
        "turns swapped",
        "search_r1",
        _edit(TURNS, lambda x: x[0]["turns"].reverse()),
        TURNS,
        1,
        "turns[0].turn",
    ),
    Corruption(
        "tool call lost",
        "search_r1",
        _edit(TURNS, lambda x: x[0]["tool_calls"].pop()),
        TURNS,
        1,
        "tool_call_count",
    ),
    Corruption(
        "tool latency as text",
        "search_r1",
        _edit(TURNS, lambda x: x[0]["tool_calls"][0].update(latency_s="74ms")),
        TURNS,
        1,
        "tool_calls[0].latency_s",
    ),
    Corruption(
        "mask too short",
        "search_r1",
        _edit(TURNS, lambda x: x[0]["response_loss_mask_rle"].pop()),
        TURNS,
        1,
        "response_loss_mask_rle",
    ),
    Corruption(
        "prompt shrinks between turns",
        "search_r1",
        _edit(
            TURNS,
            lambda x: x[0]["turns"][1].update(generation_prompt_len=100, prompt_tokens=100),
        ),
        TURNS,
        1,
        "turns[1].generation_prompt_len",
    ),
    Corruption(
        "raw shard without group ids",
        "search_r1",
        _edit(TURNS, lambda x: _without(x, "prompt_group_id", "sample_id")),
        TURNS,
        1,
        "prompt_group_id",
    ),
    Corruption(
        "completion of no tokens",
        "search_r1",
        _edit(TURNS, lambda x: x[0]["turns"][0].update(completion_tokens=0)),
        TURNS,
        1,
        "turns[0].completion_tokens",
    ),
]
