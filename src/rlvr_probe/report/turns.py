"""Turns per trajectory, and the table of tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_probe.report.document import Block, Column, amount, clean, grid, seconds

__all__ = ["tool_table", "turns_line"]


def turns_line(turns: Mapping[str, Any]) -> str:
    """What the heading says of ``turns``."""
    per = turns["per_trajectory"]
    said = (
        f"{turns['turns']:,} turns: {per['mean']:.2f} per trajectory (p50 {amount(per['p50'])}, max"
        f" {amount(per['max'])})"
    )
    if turns["unknown"]:
        said += f", known for {turns['trajectories']:,} trajectories of {_all(turns):,}"
    tokens = turns["loss_tokens"]
    return said if tokens is None else f"{said}, {tokens:,} of the response tokens in the loss"


def _all(turns: Mapping[str, Any]) -> int:
    known: int = turns["trajectories"]
    return known + int(turns["unknown"])


def tool_table(tools: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The table of ``tools``; nothing if no tool was called."""
    rows = [
        [
            "(no such tool)" if one["tool"] is None else clean(one["tool"]),
            f"{one['calls']:,}",
            *(seconds(one["latency_s"][name]) for name in ("p50", "p90", "max")),
            ", ".join(
                f"{count:,} {clean(what)}"
                for what, count in one["statuses"].items()
                if what not in ("ok", "error")
            ),
            ", ".join(f"{count:,} {clean(what)}" for what, count in one["errors"].items()),
        ]
        for one in tools
    ]
    if not rows:
        return []
    columns = (
        Column("tool", number=False),
        Column("calls"),
        Column("p50 s"),
        Column("p90 s"),
        Column("max s"),
        Column("not made", number=False),
        Column("raised", number=False),
    )
    return [grid("Tools", columns, rows, head=16, tail=2, what="tools")]
