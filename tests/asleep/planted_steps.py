"""Which step a training is in: told by the process that drives it to all others of its machine.

Stands alone, as ``planted_sleep`` does. ``steps-0.jsonl`` in a folder of books has the ids of the
processes of the training (``pids``), when each step began, and when the last one ended, monotonic,
ns: what :mod:`tests.disturbance` and :mod:`tests.plants` read.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

__all__ = ["begin", "end", "siblings", "start", "step_now"]

_TAIL_B = 4096


def start(books: str | Path) -> None:
    """Before the first step of a training whose processes are all there."""
    _write(books, pids=siblings())


def begin(books: str | Path, step: int) -> None:
    """A step begins, and the one before it ends."""
    _write(books, step=step, begin=time.monotonic_ns())


def end(books: str | Path) -> None:
    """The last step ends."""
    _write(books, end=time.monotonic_ns())


def step_now(books: str | Path) -> int | None:
    """The step that began last; None before the first one, and where nobody says."""
    try:
        with _path(books).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_B))
            lines = file.read().rpartition(b"\n")[0].split(b"\n")
    except FileNotFoundError:
        return None
    steps = (json.loads(line).get("step") for line in reversed(lines) if line.startswith(b"{"))
    return next((step for step in steps if step is not None), None)


def siblings() -> list[int]:
    """Processes that have the parent of this one, as all that Ray starts on a machine have."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == os.getppid():
            found.append(int(stat.parent.name))
    return sorted(found)


def _path(books: str | Path) -> Path:
    return Path(books) / "steps-0.jsonl"


def _write(books: str | Path, **line: Any) -> None:
    with _path(books).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
