"""A large run in ranges of whole steps: what is asked of each step by itself fits into memory."""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise
from typing import Final

from rlvr_probe.recording.ranges import narrowed, put_together
from rlvr_probe.recording.tables.database import Tables

__all__ = ["in_ranges"]

_TRAJECTORIES: Final = 2_000_000
"""Of one range, at least."""

_NARROWED: Final = (
    "trajectory", "turn", "tool_call", "verification", "reward", "reward_call", "prompt_group",
)  # fmt: skip
"""Trajectories, their parts, and groups of them; all other tables are as always."""

_STEPS: Final = """
SELECT min(batch_id), max(batch_id), coalesce(sum("rows"), 0)::BIGINT FROM batch
GROUP BY step_id ORDER BY ALL
"""

_REPEATS: Final = "SELECT count(*) > count(DISTINCT number) FROM kept_step"


def in_ranges(tables: Tables) -> Generator[int]:
    """Have ``tables`` show one range of steps after another; gives the number of each, from 0.

    They show everything at once where that is little, where two steps have one number, and where
    the batches of steps are not in their order.
    """
    steps = tables.sql.execute(_STEPS).fetchall()
    ordered = all(before[1] < after[0] for before, after in pairwise(steps))
    [(repeats,)] = tables.sql.execute(_REPEATS).fetchall()
    ranges = put_together(steps, _TRAJECTORIES) if ordered and not repeats else []
    return narrowed(tables.sql, ranges, _inside)


def _inside(first: int, last: int) -> dict[str, str]:
    return dict.fromkeys(_NARROWED, f"batch_id BETWEEN {first} AND {last}")
