"""Whom a step waited for: from its most expensive barrier back to a rank, a trajectory, a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rlvr_probe.analysis.causes.words import seconds
from rlvr_probe.analysis.ledger.unit import Unit
from rlvr_probe.analysis.results import query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["last_of"]

_SQL: Final = statements(__name__)


def last_of(tables: Tables, steps: Sequence[int], unit: Unit) -> Mapping[int, str]:
    """In words, by step, where the ledger has told of its barriers."""
    if not steps or not tables.has("barrier_wait"):
        return {}
    rows = query(tables, _SQL["last"], steps=list(steps)).dicts
    return {row["step_id"]: _told(row, unit) for row in rows}


def _told(row: Mapping[str, Any], unit: Unit) -> str:
    who = _who(row)
    time = unit.say("GPU time")
    waited = f"; {seconds(row['gpu_ns'])} of {time} at its {row['barrier']} barrier"
    return waited + (f", for {who}" if who else "")


def _who(row: Mapping[str, Any]) -> str:
    kind, name = row["last_kind"], row["name"]
    parts = list[str]()
    if row["trajectory_id"] is not None:
        one = f"trajectory {row['trajectory_id']}"
        if None not in (row["grp"], row["sample"]):
            one += f" (sample {row['sample']} of group {row['grp']})"
        parts.append(one)
        if row["engine"] is not None:
            parts.append(f"engine {row['engine']}")
        elif row["rank"] is not None:
            parts.append(f"rank {row['rank']}")
    elif row["rank"] is not None:
        parts.append(f"rank {row['rank']}")
    if kind == "turn" and row["turn"] is not None:
        parts.append(f"turn {row['turn']}")
    elif kind in ("tool", "reward") and name is not None:
        parts.append(str(name))
    elif kind is not None and kind not in ("turn", "tool"):
        parts.append(str(kind))
    return ", ".join(parts)
