"""Sleeps where a real training was told to, and keeps the book of how long it really slept.

Stands alone, for trainings in environments of their own: its folder is in their ``PYTHONPATH``.
Variables, which ``tests.planted`` makes: ``PLANTED_KIND`` (``reward``, ``rank`` or ``tool``),
``PLANTED_PLACE`` (name of the function or tool, or number of the rank), ``PLANTED_S`` (seconds a
call), ``PLANTED_STEPS`` (numbers of steps, with commas between; empty for all) and
``PLANTED_BOOKS`` (a folder). Without them nothing sleeps.

Each process writes ``slept-<pid>.jsonl`` there, one line per call that slept: step, and begin and
end on the monotonic clock, ns, which all processes of a machine have in common.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

__all__ = ["sleep_if_planted", "sleep_if_planted_async"]


def sleep_if_planted(kind: str, place: str | int, step: int | None = None) -> None:
    """Sleep if this is where; called by the reward function, rank or tool in training.

    Args:
        kind: ``reward``, ``rank`` or ``tool``.
        place: Name of the function or tool, or number of the rank.
        step: Number of the step, where the caller knows it.
    """
    seconds = _seconds(kind, place, step)
    if seconds:
        begin = time.monotonic_ns()
        time.sleep(seconds)
        _write(step, begin)


async def sleep_if_planted_async(kind: str, place: str | int, step: int | None = None) -> None:
    """As :func:`sleep_if_planted`, while other coroutines go on."""
    seconds = _seconds(kind, place, step)
    if seconds:
        begin = time.monotonic_ns()
        await asyncio.sleep(seconds)
        _write(step, begin)


def _seconds(kind: str, place: str | int, step: int | None) -> float:
    told = os.environ.get
    if (told("PLANTED_KIND"), told("PLANTED_PLACE")) != (kind, str(place)):
        return 0.0
    steps = os.environ["PLANTED_STEPS"]
    if steps and (step is None or str(step) not in steps.split(",")):
        return 0.0
    return float(os.environ["PLANTED_S"])


def _write(step: int | None, begin_ns: int) -> None:
    folder = Path(os.environ["PLANTED_BOOKS"])
    folder.mkdir(parents=True, exist_ok=True)
    line = {"step": step, "begin_ns": begin_ns, "end_ns": time.monotonic_ns()}
    with (folder / f"slept-{os.getpid()}.jsonl").open("a", encoding="utf-8") as book:
        book.write(json.dumps(line) + "\n")
