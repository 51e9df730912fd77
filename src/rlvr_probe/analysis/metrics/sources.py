"""Sources of the data: what a section has for each, where the user named the column."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.metrics.registry import FAMILIES
from rlvr_probe.analysis.metrics.section import Section, evidence_of
from rlvr_probe.analysis.statements import fill, make, quantiles_of, statements

__all__ = ["TABLES", "by_source"]

_SQL: Final = statements(__name__)

TABLES: Final = _SQL.derived("sourced_reward", "sourced_tool")

_CALLS: Final = {"rewards": ("sourced_reward", "function"), "tools": ("sourced_tool", "tool")}
"""By section: a table, and what is called; lengths are of no calls."""


def by_source(section: Section) -> None:
    """Add the metrics of every source, that with the most rows first."""
    family, answer = FAMILIES[f"{section.name}.source"], section.ask(_SQL["told"])
    told = answer.row[0]
    if told:
        answer = section.ask(_prepared(section), quantiles=[0.5, 0.99])
    if not (told and answer.rows):
        section.add("source.count", None, answer)
        return
    for row in answer.dicts:
        by = {name: row[name] for name in family.by.split()}
        evidence = evidence_of(trajectory=row["ids"])
        for key in family.metrics:
            section.add(f"source.{key}", row[key], answer, evidence=evidence, by=by)


def _prepared(section: Section) -> str:
    """The question, whose table is made."""
    if section.name not in _CALLS:
        return _SQL["lengths"]
    calls, what = _CALLS[section.name]
    make(section.tables, {calls: TABLES[calls]}, by_step=True)
    quantiles = quantiles_of(calls, f"source, {what}")
    return fill(_SQL["timed"], calls=calls, what=what, quantiles=quantiles)
