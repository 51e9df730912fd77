"""Reward function of a job (``--reward.remote_url``), which keeps a book of its calls."""

from __future__ import annotations

import os
import time
from itertools import count
from typing import Any

import torch
from openrlhf_cpu_books import step_now, write
from planted_sleep import sleep_if_planted

_calls = count()
EVALUATED = " what is 8 plus 0 ?"
"""In one prompt of an evaluation, and in none else."""


def reward_func(queries: list[str], prompts: list[str], labels: list[str], **_: Any) -> Any:
    start = time.monotonic_ns()
    time.sleep(0.01)  # stands for a verifier
    number = next(_calls)
    step, worked = step_now(), time.monotonic_ns()
    if EVALUATED in prompts[0]:
        sleep_if_planted("evaluation", reward_func.__name__, step)
    if number % int(os.environ.get("OPENRLHF_CPU_SLEEPS_EVERY", "1")) == 0:
        sleep_if_planted("reward", reward_func.__name__, step)
    [query] = queries
    value = 0.125 * (len(query) % 8)
    rewards = torch.tensor([value])
    write(
        "reward",
        value=value,
        characters=len(query),
        prompt=len(prompts[0]),
        evaluated=EVALUATED in prompts[0],
        call=step,
        start=start,
        worked=worked,
        end=time.monotonic_ns(),
    )
    return {"rewards": rewards[0], "scores": rewards[0], "extra_logs": {"doubled": 2 * value}}
