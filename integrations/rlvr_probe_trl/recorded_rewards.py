"""Reward functions that take as long as recorded ones, and return what those returned."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rlvr_probe.steering import (
    Plan,
    PlannedBatch,
    PlannedSample,
    concurrent_functions,
    reward_waits,
)

__all__ = ["Rows", "make_rewards"]


class Rows(Protocol):
    """What a rank computes rewards of: rank ``share`` of ``shares``, its samples in row order."""

    @property
    def batch(self) -> PlannedBatch: ...  # noqa: D102
    @property
    def share(self) -> int: ...  # noqa: D102
    @property
    def shares(self) -> int: ...  # noqa: D102
    @property
    def samples(self) -> Sequence[PlannedSample]: ...  # noqa: D102


def make_rewards(
    plan: Plan, now: Callable[[], Rows | None], *, with_async: bool
) -> list[Callable[..., Any]]:
    """The reward functions of a plan, to be given to a trainer.

    Args:
        plan: What they return, and when.
        now: The rows that rewards are computed of; None in an evaluation, which gets 0 at once.
        with_async: Whether the trainer takes coroutine functions, and lets them run together.
    """
    apart = concurrent_functions(plan) if with_async else frozenset()
    made = [_make(plan, index, now, apart) for index in range(len(plan.functions))]
    for function, name in zip(made, plan.functions, strict=True):
        function.__name__ = function.__qualname__ = name
    return made


def _make(
    plan: Plan, index: int, now: Callable[[], Rows | None], apart: frozenset[int]
) -> Callable[..., Any]:
    def seconds() -> float:
        rows = now()
        if rows is None:
            return 0.0
        count = len(plan.functions)
        return reward_waits(rows.batch, count, rows.share, rows.shares, apart)[index]

    def values(completions: Sequence[object]) -> list[float | None]:
        rows = now()
        if rows is None:
            return [0.0] * len(completions)
        return [sample.rewards[index] for sample in rows.samples]

    def planned(completions: Sequence[object], **_: object) -> list[float | None]:
        time.sleep(seconds())
        return values(completions)

    async def planned_later(completions: Sequence[object], **_: object) -> list[float | None]:
        await asyncio.sleep(seconds())
        return values(completions)

    return planned_later if index in apart else planned
