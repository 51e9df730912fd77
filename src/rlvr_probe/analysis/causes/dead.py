"""Processes of a recording that died, in a sentence."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.causes.words import seconds, whom
from rlvr_probe.analysis.results import query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["APART_S", "dead_processes"]

_SQL: Final = statements(__name__)

APART_S: Final = 2.0
"""How much longer others lived than a process that died before them, s. Who kills a whole job does
it within that; a sign of life is 0.1 s old, more on a busy machine."""


def dead_processes(tables: Tables) -> list[str]:
    """A note on those that ended without closing their journals, as a signal ends them; or none."""
    rows = query(tables, _SQL["dead"]).dicts
    if not rows:
        return []
    first = rows[0]
    note = (
        f"{whom(rows)} died, as by a signal, and closed no journal:"
        f" {'the first of them' if len(rows) > 1 else 'it'} was last seen"
        f" {seconds(first['lived_ns'])} after its start"
    )
    if first["before_ns"] > APART_S * 1e9:
        note += f", {seconds(first['before_ns'])} before the last sign of life of the recording"
    return [note]
