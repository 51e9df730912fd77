"""What usually helps against a cause, what would refute it, and values in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rlvr_probe.analysis.statements import read_texts

__all__ = ["HELPS", "KINDS", "REFUTED", "per_cent", "placed", "seconds", "times", "whom"]

_NAMED: Final = 3
"""Processes that are named one by one."""

_TEXTS: Final = read_texts(__name__, "kinds.ini")

KINDS: Final = tuple(_TEXTS)
"""Everything that may be named."""

HELPS: Final = {kind: texts["helps"] for kind, texts in _TEXTS.items()}
"""What usually helps, by kind."""

REFUTED: Final = {kind: texts["refuted"] for kind, texts in _TEXTS.items()}
"""What would refute it, by kind."""


def per_cent(share: float) -> str:
    """A share in words."""
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


def placed(rank: int | None, team: str, process: int) -> tuple[str, dict[str, str | int]]:
    """A rank in words, and as the place of a cause.

    Args:
        rank: Its number in its group; None where that is not known.
        team: That group, where several have methods of one name; else empty.
        process: Its number among the processes.
    """
    kind, number = ("process", process) if rank is None else ("rank", rank)
    if not team:
        return f"{kind} {number}", {kind: number}
    return f"{kind} {number} of {team}", {kind: number, "worker_group": team}


def whom(rows: Iterable[Mapping[str, Any]]) -> str:
    """Processes in words, the first three of them: by ``rank``, or by ``role`` and ``process``."""
    names = dict.fromkeys(
        f"{row['role'] or 'process'} {row['process']}" if row["rank"] is None
        else f"rank {row['rank']}"
        for row in rows
    )  # fmt: skip
    more = len(names) - _NAMED
    return " and ".join([*names][:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def seconds(ns: float) -> str:
    """A duration in words; ``ns`` in ns."""
    value = ns / 1e9
    if value < 10:
        return f"{value:.2g} s" if value < 1 else f"{value:.1f} s"
    return f"{value:,.0f} s"


def times(factor: float) -> str:
    """A factor in words."""
    return f"{factor:.2f}x" if factor < 1.2 else f"{factor:.1f}x"
