"""Rule-based reward of a job, which keeps a book of its calls."""

from __future__ import annotations

import os
import time
from typing import Any

from verl_cpu_books import CANARY, write


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    **_: Any,
) -> float:
    """The same for every answer to each fourth prompt: such groups are filtered."""
    start = time.monotonic_ns()
    told = extra_info or {}
    index = int(told.get("index", -1))
    time.sleep(0.01)  # stands for a verifier
    if os.environ.get("VERL_CPU_FAIL") == "reward":
        raise RuntimeError(CANARY["exception"])
    value = 1.0 if index % 4 == 3 else 0.125 * (len(solution_str) % 8)
    write(
        "reward",
        split=told.get("split"),
        index=index,
        value=value,
        characters=len(solution_str),
        start=start,
        end=time.monotonic_ns(),
    )
    return value
