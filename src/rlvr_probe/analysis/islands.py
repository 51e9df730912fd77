"""Intervals that overlap or touch, put together: the time that is covered, each moment once."""

from __future__ import annotations

from textwrap import indent
from typing import Final

__all__ = ["OVERLAP", "covered", "islands"]

_LONG: Final = "end_ns - start_ns"
_WIDTH: Final = f"CASE WHEN {_LONG} > 1 THEN floor(log2({_LONG}))::INTEGER - 1 END"
OVERLAP: Final = f"{_WIDTH}, start_ns >> coalesce({_WIDTH}, 0)"
"""What to group rows by so that those of a group surely overlap, and are one interval: those that
begin in the same slot of time, and last longer than the slot, whose width is a power of two.

That takes no order, and leaves few of very many rows to be sorted.
"""


def islands(rows: str, keys: str) -> str:
    """A query of ``rows`` with ``island``: what overlaps or touches has one number.

    ``min(start_ns)`` and ``max(end_ns)`` by ``keys`` and ``island`` are intervals apart from one
    another, so that their lengths add up to the time that is covered.

    Args:
        rows: A table, or a query in parentheses; it has ``start_ns`` and ``end_ns``, ns.
        keys: Columns of it: rows that differ there never belong together.
    """
    return f"""\
SELECT *, count(*) FILTER (before_ns IS NULL OR start_ns > before_ns) OVER (
  PARTITION BY {keys} ORDER BY start_ns, end_ns ROWS UNBOUNDED PRECEDING) AS island
FROM (
  SELECT *, max(end_ns) OVER (
    PARTITION BY {keys} ORDER BY start_ns, end_ns
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
  FROM {indent(rows, "  ").lstrip()}
)"""


def covered(rows: str, keys: str) -> str:
    """A query of ``keys`` and ``ns``, the time that rows of ``rows`` cover, each moment once.

    Args:
        rows: As for :func:`islands`; rows without a time cover none.
        keys: As for :func:`islands`.
    """
    return f"""\
SELECT {keys}, sum(greatest(0, end_ns - greatest(start_ns, before_ns)))::BIGINT AS ns
FROM (
  SELECT *, coalesce(max(end_ns) OVER (
    PARTITION BY {keys} ORDER BY start_ns
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start_ns) AS before_ns
  FROM (
    SELECT {keys}, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM {indent(rows, "    ").lstrip()}
    WHERE start_ns IS NOT NULL AND end_ns IS NOT NULL
    GROUP BY {keys}, {OVERLAP}
  )
)
GROUP BY {keys}"""
