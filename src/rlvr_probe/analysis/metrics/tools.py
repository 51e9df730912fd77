"""Tools: which take how long, how they end, and what part of a trajectory's time they are."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.metrics.families import Calls, distribution
from rlvr_probe.analysis.metrics.section import Section, evidence_of
from rlvr_probe.analysis.metrics.sources import by_source
from rlvr_probe.analysis.results import Chapter
from rlvr_probe.analysis.statements import fill, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["TABLES", "tools"]

_SQL: Final = statements(__name__)
_CALLS: Final = Calls("tool", _SQL["calls"])
TABLES: Final = _CALLS.tables


def tools(tables: Tables) -> Chapter:
    """What tools take."""
    section = Section.of_samples(tables, "tools", "Tools")
    _CALLS.add(section)
    if not tables.sql.execute(_SQL["count"]).fetchall()[0][0]:
        return section.chapter()
    for quantity in ("call_s", "trajectory_s", "queries"):
        distribution(section, quantity, _SQL[quantity])
    answer = section.ask(_SQL["trajectory_share"])
    section.add("trajectory_share", answer.row[0], answer)
    for column, what in (("status", "coalesce(status, '(unknown)')"), ("error", "error")):
        answer = section.ask(fill(_SQL["outcomes"], what=what))
        for row in answer.dicts:
            evidence = evidence_of(trajectory=row["trajectories"])
            by = {"tool": row["tool"], column: row["what"]}
            section.add(column, row["count"], answer, evidence=evidence, by=by)
    by_source(section)
    return section.chapter()
