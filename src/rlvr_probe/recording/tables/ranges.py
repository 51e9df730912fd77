"""A large run in ranges of whole steps: what is asked of each step by itself fits into memory then.

While a range is asked, tables of trajectories and of their parts have temporary views of their
names in front of them, which show what belongs to it; all other tables are as always.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator
from typing import Final

from rlvr_probe.recording.tables.database import Tables

__all__ = ["in_ranges"]

_TRAJECTORIES: Final = 2_000_000
"""Of one range, at least."""

_RANGED: Final = (
    "trajectory", "turn", "tool_call", "verification", "reward", "reward_call", "prompt_group",
)  # fmt: skip

_STEPS: Final = """
SELECT min(batch_id), max(batch_id), coalesce(sum("rows"), 0) FROM batch
GROUP BY step_id ORDER BY ALL
"""

_REPEATS: Final = "SELECT count(*) > count(DISTINCT number) FROM kept_step"


def in_ranges(tables: Tables) -> Generator[int]:
    """Have ``tables`` show one range of steps after another; gives the number of each, from 0.

    They show everything at once where that is little, where two steps have one number, and where
    the batches of steps are not in their order.
    """
    sql, ranges = tables.sql, _ranges(tables)
    if len(ranges) < 2:
        yield 0
        return
    [place] = sql.execute("SELECT current_database(), current_schema()").fetchall()
    whole = ".".join(f'"{name}"' for name in place)
    try:
        for number, (first, last) in enumerate(ranges):
            for table in _RANGED:
                sql.execute(
                    f"CREATE OR REPLACE TEMP VIEW {table} AS FROM {whole}.{table}"
                    f" WHERE batch_id BETWEEN {first} AND {last}"
                )
            yield number
    finally:
        for table in _RANGED:
            sql.execute(f"DROP VIEW IF EXISTS temp.{table}")


def _ranges(tables: Tables) -> list[tuple[int, int]]:
    """First and last batch of each range."""
    steps = tables.sql.execute(_STEPS).fetchall()
    ordered = all(before[1] < after[0] for before, after in itertools.pairwise(steps))
    [(repeats,)] = tables.sql.execute(_REPEATS).fetchall()
    if repeats or not ordered:
        return []
    ranges, trajectories = list[tuple[int, int]](), _TRAJECTORIES
    for first, last, rows in steps:
        if trajectories >= _TRAJECTORIES:
            ranges.append((first, last))
            trajectories = 0
        ranges[-1] = ranges[-1][0], last
        trajectories += rows
    return ranges
