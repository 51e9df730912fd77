"""Directories as PolyTrace's own collectors write them: made up here, and published ones."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.published import WORKLOADS

RUNS = {
    "verl": "verl/20260614_023133",
    "verl-video": "verl-video/20260609_033329",
    "rllm": "rllm/20260616_024512",
    "search_r1": "search_r1/0617_0223",
}

N = 8
TP = 4
PROMPTS = 96


def dump(path: Path, records: Iterable[object]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")


def copy_published(kind: str, directory: Path) -> Path:
    """A writable copy of a published run."""
    directory.mkdir()
    for path in (WORKLOADS / RUNS[kind]).iterdir():
        shutil.copyfile(path, directory / path.name)
    return directory


def make_up(kind: str, directory: Path) -> Path:
    """A run of the same shape as the published one, with other numbers."""
    directory.mkdir()
    draw = random.Random(kind)
    if kind == "search_r1":
        made = [_trajectory(draw, group, sample) for group in range(16) for sample in range(N)]
        dump(directory / "multiturn_workload_step_0.jsonl", made)
        return directory
    for step in range(1, 4) if kind == "verl-video" else range(6):
        records = _packed(draw, step)
        if kind == "rllm":
            dump(directory / f"reward_timings_step_{step}.jsonl", _rewards(draw, step, records))
        # Replicas append when they finish.
        records.sort(key=lambda one: (one["local_index"] // 16, -one["dp_rank"]))
        dump(directory / f"packed_lengths_step_{step}.jsonl", records)
    if kind == "verl":
        dump(directory / "dapo_filter_indices.jsonl", _filter(draw))
    return directory


def _packed(draw: random.Random, step: int) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "rank": dp * TP,
            "tp_rank": 0,
            "dp_rank": dp,
            "local_index": index,
            "input": draw.randint(60, 600),
            "output": [draw.randint(1, 9000) for _ in range(N)],
            "n_sampling": N,
            "validate": False,
        }
        for dp in range(2)
        for index in range(PROMPTS // 2)
    ]


def _rewards(draw: random.Random, step: int, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for dp in range(2):
        outputs = [n for one in records if one["dp_rank"] == dp for n in one["output"]]
        found.append(
            {
                "step": step,
                "rank": dp * TP,
                "tp_rank": 0,
                "dp_rank": dp,
                "batch_size": len(outputs),
                "reward_time_s": draw.uniform(40, 120),
                "response_sum": sum(outputs),
                "response_mean": sum(outputs) / len(outputs),
                "response_max": max(outputs),
                "validate": False,
            }
        )
    return found


def _filter(draw: random.Random) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for step in range(6):
        second = step in (1, 3)
        before = found[-1]["kept_prompt_count"] if second else 0
        kept = sorted(draw.sample(range(PROMPTS), 27 if not second else 30))
        used = kept[: 32 - before]
        found.append(
            {
                "workload_step": step,
                "trainer_step": (1, 1, 2, 2, 3, 4)[step],
                "gen_batch_index": 2 if second else 1,
                "prompt_count": PROMPTS,
                "n_sampling": N,
                "train_batch_size": 32,
                "num_prompt_in_batch_before": before,
                "kept_prompt_count": len(kept),
                "used_prompt_count": len(used),
                "kept_prompt_indices": kept,
                "used_prompt_indices": used,
            }
        )
    return found


def _trajectory(draw: random.Random, group: int, sample: int) -> dict[str, Any]:
    cap, room, prompt = 3000, 7096, 310 + group % 20
    count = 2 if group == sample == 0 else draw.randint(1, 4)
    turns: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    mask: list[list[int]] = []
    length = prompt
    for turn in range(count):
        last = turn == count - 1
        new = draw.randint(20, 300)
        turns.append(
            {
                "turn": turn,
                "generation_prompt_len": length,
                "prompt_tokens": length,
                "cached_tokens": 0 if turn == 0 else prompt - 1,
                "max_new_tokens": min(cap, room - length - 1),
                "completion_tokens": new,
                "generated_text_token_len": new if last else 0,
                "assistant_append_len": new,
                "assistant_loss_len": new,
                "total_len_after": length + new,
                "finish_reason": "stop" if last else "tool_calls",
                "tool_call_count": 0 if last else 1,
                "engine_latency_s": draw.uniform(5, 200),
            }
        )
        length += new
        mask.append([1, new])
        if not last:
            append = draw.randint(100, 900)
            calls.append(
                {
                    "turn": turn,
                    "tool_name": "search",
                    "query_count": 1,
                    "latency_s": draw.uniform(0.05, 3),
                    "response_token_len": append,
                    "append_len": append,
                    "loss_len": 0,
                    "status": "success",
                    "total_results": 3,
                }
            )
            length += append
            mask.append([0, append])
    response = min(cap, length - prompt)
    while sum(run for _, run in mask) > response:
        over = sum(run for _, run in mask) - response
        mask[-1][1] -= min(over, mask[-1][1])
        if not mask[-1][1]:
            mask.pop()
    return {
        "step": 0,
        "prompt_len": prompt,
        "max_response_len": cap,
        "max_model_len": room,
        "turns": turns,
        "tool_calls": calls,
        "finish_reason": "stop",
        "final_total_len": length,
        "final_response_len": response,
        "final_response_attention_len": response,
        "final_response_loss_len": sum(run for value, run in mask if value),
        "response_loss_mask_rle": mask,
        "turn_count": len(turns),
        "tool_call_count": len(calls),
        "validate": False,
        "prompt_group_id": group,
        "sample_id": sample,
    }
