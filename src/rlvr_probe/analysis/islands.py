"""Intervals that overlap or touch, put together: the time that is covered, each moment once."""

from __future__ import annotations

from textwrap import indent

__all__ = ["islands"]


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
