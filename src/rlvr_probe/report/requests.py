"""What inference engines did for requests, and how long these waited for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlvr_probe.analysis.summary.requests import TIMES
from rlvr_probe.report.document import Block, Column, Line, grid, seconds

__all__ = ["request_blocks"]


def request_blocks(found: Mapping[str, Any] | None) -> list[Block]:
    """Counts of ``requests``, and the table of their times."""
    if found is None:
        return []
    parts = [f"{found['requests']:,} requests to engines"]
    if found["unjoined"]:
        parts.append(f"{found['unjoined']:,} of no turn that is known")
    if found["cached_share"] is not None:
        parts.append(f"{found['cached_share']:.1%} of their prompt tokens cached")
    if found["preemptions"]:
        parts.append(f"{found['preempted']:,} preempted, {found['preemptions']:,} times in all")
    rows = [
        [
            name.removesuffix("_s"),
            *(seconds(found[name][what]) for what in ("p50", "p90", "p99", "max")),
            seconds(found["total_s"][name]),
        ]
        for name in TIMES
        if found[name] is not None
    ]
    blocks: list[Block] = [Line(", ".join(parts))]
    if rows:
        columns = (
            Column("requests", number=False),
            *(Column(f"{what} s") for what in ("p50", "p90", "p99", "max")),
            Column("total s"),
        )
        blocks.append(grid("Requests", columns, rows, head=3, tail=0, what="times"))
    return blocks
