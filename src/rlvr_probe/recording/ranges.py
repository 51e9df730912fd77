"""Many rows in ranges, of which one after another fits into memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

__all__ = ["narrowed", "put_together"]

Range = tuple[int, int]
"""First and last number."""


def put_together(parts: Iterable[tuple[int, int, int]], least: int) -> list[Range]:
    """Ranges of as few parts as have ``least`` rows each, but for the last.

    Args:
        parts: First and last number of each, in their order, and its rows.
        least: See above.
    """
    ranges, held = list[Range](), least
    for first, last, rows in parts:
        if held >= least:
            ranges.append((first, last))
            held = 0
        ranges[-1] = ranges[-1][0], last
        held += rows
    return ranges


def narrowed(
    sql: duckdb.DuckDBPyConnection,
    ranges: Sequence[Range],
    conditions: Callable[[int, int], Mapping[str, str]],
) -> Generator[int]:
    """Have tables show one range of their rows after another; gives the number of each, from 0.

    Where there are not several ranges, they show everything at once.

    Args:
        sql: Has the tables; temporary views of their names stand in front of them meanwhile.
        ranges: See above.
        conditions: What rows of a range have in each of these tables, or views.
    """
    if len(ranges) < 2:
        yield 0
        return
    [place] = sql.execute("SELECT current_database(), current_schema()").fetchall()
    whole = ".".join(f'"{name}"' for name in place)
    shown = conditions(*ranges[0])
    try:
        for number, (first, last) in enumerate(ranges):
            for name, condition in conditions(first, last).items():
                sql.execute(
                    f"CREATE OR REPLACE TEMP VIEW {name} AS FROM {whole}.{name} WHERE {condition}"
                )
            yield number
    finally:
        for name in shown:
            sql.execute(f"DROP VIEW IF EXISTS temp.{name}")
