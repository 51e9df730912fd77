"""A job of many processes: its roles, calls of worker groups, filtered prompts, old weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlvr_probe.report.document import Block, Column, Line, amount, clean, grid, seconds

__all__ = ["job_lines", "rpc_table"]


def job_lines(summary: Mapping[str, Any]) -> list[Block]:
    """What the heading says of all this."""
    said = list[str]()
    if summary["roles"]:
        said.append(
            "processes: "
            + ", ".join(
                f"{one['processes']:,} {clean(one['role'] or 'that did not tell', 32)}"
                + (" (trains)" if one["trains"] else "")
                for one in summary["roles"]
            )
        )
    chosen = summary["selection"]
    if chosen is not None:
        parts = [
            f"{chosen[name]:,} {words}"
            for name, words in (("kept", "passed the filter"), ("used", "were trained on"))
            if chosen[name] is not None
        ]
        said.append(f"of {chosen['groups']:,} groups " + (", ".join(parts) or "some were left out"))
    old = summary["staleness"]
    if old is not None and old["stale"]:
        per = old["steps"]
        said.append(
            f"{old['stale']:,} of {old['trajectories']:,} trajectories saw weights that were older"
            f" than the newest: {per['mean']:.2f} steps (p50 {amount(per['p50'])},"
            f" max {amount(per['max'])})"
        )
    return [Line(text) for text in said]


def rpc_table(found: Mapping[str, Any] | None) -> list[Block]:
    """The table of ``rpcs``; nothing if no worker group was called."""
    rows = [
        [
            clean(one["group"], 24),
            clean(one["method"], 32),
            f"{one['calls']:,}",
            f"{one['ranks']:,}",
            seconds(one["caller_s"]),
            seconds(one["mean_s"]),
            *(
                [seconds(one["slowest_s"]), str(one["slowest_rank"])]
                if one["ranks"] > 1
                else ["", ""]
            ),
        ]
        for one in (found or {}).get("methods", ())
    ]
    if not rows:
        return []
    columns = (
        Column("worker group", number=False),
        Column("method", number=False),
        Column("calls"),
        Column("ranks"),
        Column("caller s"),
        Column("rank s"),
        Column("slowest rank s"),
        Column("which"),
    )
    title = "Calls of worker groups (per call; they lie inside the stages)"
    return [grid(title, columns, rows, head=16, tail=2, what="methods")]
