"""Sleeps where a real training was told to, and keeps the book of how long it really slept.

Stands alone, for trainings in environments of their own: its folder is in their ``PYTHONPATH``.
Variables, which ``tests.planted`` makes: ``PLANTED_KIND`` (``reward``, ``rank``, ``tool``...),
``PLANTED_PLACE`` (name of the function or tool, or number of the rank), ``PLANTED_S`` (seconds),
``PLANTED_PER`` (what for: a ``call``, the number of the ``step``, or a ``second`` of work),
``PLANTED_STEPS`` (numbers of steps, with commas between; empty for all) and ``PLANTED_BOOKS`` (a
folder). Without them nothing sleeps.

Each process writes ``slept-<pid>.jsonl`` there, one line per call that slept: step, and begin and
end on the monotonic clock, ns, which all processes of a machine have in common.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

__all__ = ["is_planted", "keep", "sleep_if_planted", "sleep_if_planted_async"]


def sleep_if_planted(
    kind: str, place: str | int, step: int | None = None, worked_s: float = 0.0
) -> None:
    """Sleep if this is where; called by the reward function, rank or tool in training.

    Args:
        kind: ``reward``, ``rank``, ``tool``...
        place: Name of the function or tool, or number of the rank.
        step: Number of the step, where the caller knows it.
        worked_s: How long the call itself took.
    """
    seconds = _seconds(kind, place, step, worked_s)
    if seconds:
        begin = time.monotonic_ns()
        time.sleep(seconds)
        keep(step, begin)


async def sleep_if_planted_async(kind: str, place: str | int, step: int | None = None) -> None:
    """As :func:`sleep_if_planted`, while other coroutines go on."""
    seconds = _seconds(kind, place, step)
    if seconds:
        begin = time.monotonic_ns()
        await asyncio.sleep(seconds)
        keep(step, begin)


def is_planted(kind: str, place: str | int, step: int | None) -> bool:
    """Whether this is where; for what is slow without sleeping."""
    told = os.environ.get
    if (told("PLANTED_KIND"), told("PLANTED_PLACE")) != (kind, str(place)):
        return False
    steps = os.environ["PLANTED_STEPS"]
    return not steps or (step is not None and str(step) in steps.split(","))


def _seconds(kind: str, place: str | int, step: int | None, worked_s: float = 0.0) -> float:
    if not is_planted(kind, place, step):
        return 0.0
    times = {"call": 1.0, "step": step or 0, "second": worked_s}
    return float(os.environ["PLANTED_S"]) * times[os.environ["PLANTED_PER"]]


def keep(step: int | None, begin_ns: int) -> None:
    """Write into the book that something was slow from then to now."""
    folder = Path(os.environ["PLANTED_BOOKS"])
    folder.mkdir(parents=True, exist_ok=True)
    line = {"step": step, "begin_ns": begin_ns, "end_ns": time.monotonic_ns()}
    with (folder / f"slept-{os.getpid()}.jsonl").open("a", encoding="utf-8") as book:
        book.write(json.dumps(line) + "\n")
