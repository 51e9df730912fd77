"""Sources of the data: what a section has for each, where the user named the column."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.metrics.registry import FAMILIES
from rlvr_probe.analysis.metrics.section import Section, evidence_of
from rlvr_probe.analysis.statements import statements

__all__ = ["by_source"]

_SQL: Final = statements(__name__)

_QUERIES: Final = {section: _SQL[section] for section in ("lengths", "rewards", "tools")}
"""By section, what is asked of it."""


def by_source(section: Section) -> None:
    """Add the metrics of every source, that with the most rows first."""
    family, answer = FAMILIES[f"{section.name}.source"], section.ask(_QUERIES[section.name])
    if not answer.rows:
        section.add("source.count", None, answer)
    for row in answer.dicts:
        by = {name: row[name] for name in family.by.split()}
        evidence = evidence_of(trajectory=row["ids"])
        for key in family.metrics:
            section.add(f"source.{key}", row[key], answer, evidence=evidence, by=by)
