"""What a list of runs says of one: what trained, how much it took, and what cost it most."""

from __future__ import annotations

from typing import Any, Final

from rlvr_probe.analysis.characterization import Characterization
from rlvr_probe.analysis.results import query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.lake import COLUMNS
from rlvr_probe.recording.tables import Tables

__all__ = ["summary_of"]

_SQL: Final = statements(__name__)


def summary_of(tables: Tables, found: Characterization) -> dict[str, Any]:
    """The row of one run; what is unknown is absent."""
    [row] = query(tables, _SQL["summary"]).dicts
    counts = dict(zip(found.counts.columns, found.counts.row, strict=True))
    row |= {name: counts[name] for name in ("steps", "trajectories", "lost")}
    if found.ledger is not None:
        ledger = found.ledger
        row |= {
            "gpus": len(ledger.gpus),
            "hours": ledger.wall_s / 3600,
            "gpu_hours": ledger.gpu_s / 3600,
        }
    if found.causes:
        cause = found.causes[0]
        row |= {
            "cause": cause.kind,
            "cause_share": cause.share,
            "cause_title": cause.title,
        }
    return {name: row[name] for name in COLUMNS if row.get(name) is not None}
