"""What the processes of a job write down themselves, for the tests to compare a recording with."""

from __future__ import annotations

import functools
import itertools
import json
import os
import time
from typing import Any

__all__ = ["CANARY", "booked", "never_comes_back", "step_now", "write"]

CANARY = {
    "prompt": "zebrafinch",
    "tool_argument": "blackbird",
    "tool_output": "goldfinch",
    "agent_state": "nightjar",
    "exception": "kingfisher",
}
"""Texts that must be nowhere in a recording."""


def write(kind: str, **line: Any) -> None:
    """Add a line to the book of this kind and process; it is on disk when the call returns."""
    path = os.path.join(os.environ["VERL_CPU_BOOKS"], f"{kind}-{os.getpid()}.jsonl")
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, (json.dumps({"pid": os.getpid(), **line}) + "\n").encode())
    finally:
        os.close(file)


def step_now() -> int | None:
    """The step that the job is in, where its controller says so."""
    import planted_steps

    step: int | None = planted_steps.step_now(os.environ["VERL_CPU_BOOKS"])
    return step


def never_comes_back() -> None:
    """Say which process hangs, and since when (CLOCK_MONOTONIC, ns), and do."""
    print(f"hangs {os.getpid()} {time.monotonic_ns()}", flush=True)
    time.sleep(1_000)


def booked(compute: Any) -> Any:
    """Log-probabilities with a book, and with what a rank is told to do behind them.

    That is behind its last collective: else the others would end with it.
    """
    calls = itertools.count()

    @functools.wraps(compute)
    def log_probs(*args: Any, **kwargs: Any) -> Any:
        from planted_sleep import sleep_if_planted

        result = compute(*args, **kwargs)
        rank, call = os.environ["RANK"], next(calls)
        worked = time.monotonic_ns()
        sleep_if_planted("rank", rank)
        write("log_prob", rank=int(rank), call=call, worked=worked, end=time.monotonic_ns())
        if os.environ.get("VERL_CPU_MISCHIEF") == f"hang_rank_{rank}@{call}":
            never_comes_back()
        return result

    return log_probs
