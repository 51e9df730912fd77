"""What the processes of a job write down themselves, for the tests to compare a recording with."""

from __future__ import annotations

import json
import os
from typing import Any

__all__ = ["CANARY", "step_now", "write"]

CANARY = {"prompt": "zebrafinch", "label": "blackbird"}
"""Texts that must be nowhere in a recording."""


def step_now() -> int | None:
    """The step that the job is in, where its controller says so."""
    import planted_steps

    step: int | None = planted_steps.step_now(os.environ["OPENRLHF_CPU_BOOKS"])
    return step


def write(kind: str, **line: Any) -> None:
    """Add a line to the book of this kind and process; it is on disk when the call returns."""
    path = os.path.join(os.environ["OPENRLHF_CPU_BOOKS"], f"{kind}-{os.getpid()}.jsonl")
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, (json.dumps({"pid": os.getpid(), **line}) + "\n").encode())
    finally:
        os.close(file)
