"""Intervals that overlap or touch, put together: the time that is covered, each moment once."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.statements import fill, statements

__all__ = ["OVERLAP", "covered", "islands"]

_SQL: Final = statements(__name__)
OVERLAP: Final = _SQL["overlap"]
"""What to group rows by so that those of a group surely overlap."""


def islands(rows: str, keys: str) -> str:
    """A query of ``rows`` with ``island``: what overlaps or touches has one number.

    ``min(start_ns)`` and ``max(end_ns)`` by ``keys`` and ``island`` are intervals apart from one
    another, so that their lengths add up to the time that is covered.

    Args:
        rows: A table, or a query; it has ``start_ns`` and ``end_ns``, ns.
        keys: Columns of it: rows that differ there never belong together.
    """
    return fill(_SQL["islands"], rows=_source(rows), keys=keys)


def covered(rows: str, keys: str) -> str:
    """A query of ``keys`` and ``ns``, the time that rows of ``rows`` cover, each moment once.

    Args:
        rows: As for :func:`islands`; rows without a time cover none.
        keys: As for :func:`islands`.
    """
    return fill(_SQL["covered"], rows=_source(rows), keys=keys)


def _source(rows: str) -> str:
    return rows if rows.isidentifier() else fill("({rows})", rows=rows)
