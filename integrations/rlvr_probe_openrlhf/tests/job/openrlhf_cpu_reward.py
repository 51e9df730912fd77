"""Reward function of a job (``--reward.remote_url``), which keeps a book of its calls."""

from __future__ import annotations

import time
from typing import Any

import torch
from openrlhf_cpu_books import write


def reward_func(queries: list[str], prompts: list[str], labels: list[str], **_: Any) -> Any:
    start = time.monotonic_ns()
    time.sleep(0.01)  # stands for a verifier
    [query] = queries
    value = 0.125 * (len(query) % 8)
    rewards = torch.tensor([value])
    write(
        "reward",
        value=value,
        characters=len(query),
        prompt=len(prompts[0]),
        start=start,
        end=time.monotonic_ns(),
    )
    return {"rewards": rewards[0], "scores": rewards[0], "extra_logs": {"doubled": 2 * value}}
