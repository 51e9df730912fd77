"""Reading lengths and settings out of OpenRLHF's values: pure functions, no tensor is read.

A value of an unexpected shape is unknown: None, never 0 and never an exception.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from types import FrameType
from typing import Any

from rlvr_probe.reading import attribute, scalar

__all__ = ["Lengths", "lengths_of", "local", "reward_of", "scores_of", "width"]

_DEPTH = 16
"""Frames that are looked at."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """What a trajectory is made of.

    Attributes:
        prompt_tokens: Until its first turn.
        response_tokens: From there on, what an environment said in it included.
        runs: Tokens in and out of the loss in turn; None if all are in it.
        cut: Whether what did not fit was dropped.
    """

    prompt_tokens: int
    response_tokens: int
    runs: list[int] | None
    cut: bool


def lengths_of(response: Any, most: int | None) -> Lengths | None:
    """Of what an executor returned; None if it says nothing of it.

    Args:
        response: Its dict: ``observation_tokens``, and ``action_ranges`` with start and end of what
            was generated in each turn.
        most: Tokens that OpenRLHF keeps of it, None for all.
    """
    if not isinstance(response, dict):
        return None
    tokens, ranges = response.get("observation_tokens"), response.get("action_ranges")
    if not isinstance(tokens, (list, tuple)) or not isinstance(ranges, (list, tuple)):
        return None
    total = len(tokens) if most is None else min(len(tokens), most)
    cut = total < len(tokens)
    ends = [place for turn in ranges for place in turn]
    if not ends:  # it ended before its first turn
        return Lengths(total, 0, None, cut)
    if not all(isinstance(place, Integral) and not isinstance(place, bool) for place in ends):
        return None
    places = list(map(int, ends))
    if places != sorted(places) or len(places) % 2:
        return None
    clipped = [min(place, total) for place in places]
    runs = _runs(list(zip(clipped[::2], clipped[1::2], strict=True)), total)
    return Lengths(clipped[0], total - clipped[0], runs, cut)


def _runs(ranges: Sequence[tuple[int, int]], total: int) -> list[int] | None:
    """Lengths of what is in ``ranges`` and of what is not, in turn; None if all is in."""
    runs, at = [0], ranges[0][0]
    for start, end in ranges:
        if start == end:
            continue
        if start > at:
            runs += [start - at, 0]
        runs[-1] += end - start
        at = end
    if at < total:
        runs.append(total - at)
    return None if len(runs) == 1 else runs


def local(function: str, name: str) -> Any:
    """A variable of the innermost caller of this name; None if there is none.

    For what is known nowhere else. Only read.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_DEPTH):
        if frame is None:
            return None
        if frame.f_code.co_name == function:
            return frame.f_locals.get(name)
        frame = frame.f_back
    return None


def width(tensor: Any) -> int | None:
    """Columns of a tensor (rows x tokens), by its shape."""
    shape = attribute(tensor, "shape")
    return int(shape[1]) if shape is not None and len(shape) == 2 else None


def reward_of(value: Any) -> float | None:
    """A reward in host memory as a plain float; None if there is none.

    OpenRLHF's own reward server answers the list of the one reward that it was asked for.
    """
    return scalar(value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value)


def scores_of(batches: Any, rows: int) -> list[float | None] | None:
    """What a reward model gave each row; None if that is unknown of any row.

    Args:
        batches: Experiences of several rows each, with ``index``: which rows they are.
        rows: How many there are.
    """
    if not isinstance(batches, list):
        return None
    scores = dict[int, float | None]()
    for batch in batches:
        rewards, index = attribute(batch, "rewards"), attribute(batch, "index")
        on_host = attribute(rewards, "device", "type") == "cpu" and attribute(rewards, "ndim") == 1
        if not on_host or not isinstance(index, list) or len(index) != len(rewards):
            return None
        scores |= zip(index, map(reward_of, rewards.tolist()), strict=True)
    return [scores[row] for row in range(rows)] if sorted(scores) == list(range(rows)) else None
