"""Rewards: which functions take how long, whether they queue, and how many run at a time."""

from __future__ import annotations

import math
from typing import Final

from rlvr_probe.analysis.metrics.families import Calls, distribution
from rlvr_probe.analysis.metrics.section import ALIKE, MOST_ROWS, Section, evidence_of
from rlvr_probe.analysis.metrics.sources import by_source
from rlvr_probe.analysis.results import Chapter, Evidence
from rlvr_probe.analysis.samples import is_workload
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["TABLES", "rewards"]

_SQL: Final = statements(__name__)
_CALLS: Final = Calls("function", _SQL["calls"])
TABLES: Final = _CALLS.tables

_NOTHING: Final = 1e-6
"""A share that times in whole nanoseconds can be off by."""


def rewards(tables: Tables) -> Chapter:
    """What verification takes."""
    section = Section.of_samples(tables, "rewards", "Rewards")
    names = [name for name in _CALLS.add(section) if name is not None]
    _values(section)
    _work(section, names)
    _attempts(section, names)
    distribution(section, "skew", _SQL["skew"])
    _ranks(section)
    answer = section.ask(_SQL["trajectory_share"]) if names else None
    section.add("trajectory_share", answer.row[0] if answer else None, answer)
    by_source(section)
    return section.chapter()


def _ranks(section: Section) -> None:
    answer = section.ask(_SQL["wait_share"])
    section.add("wait_share", answer.row[0], answer)
    [count] = section.ask(_SQL["ranks_count"]).row
    answer = section.ask(_SQL["by_process"], every=math.ceil(count / MOST_ROWS) or 1)
    if answer.rows:
        section.add_series("by_process", answer, count)


def _values(section: Section) -> None:
    answer = section.ask(_SQL["values"])
    for row in answer.dicts:
        by = {"function": row["function"] or "(unknown)"}
        # The format has one word for both.
        alike = is_workload(section.tables) and row["missing"] > 0
        for name in ("finite", "not_finite", "missing"):
            if alike and name != "finite":
                section.add(f"value.{name}", None, answer, why=ALIKE, by=by)
                continue
            ids = row[f"{name}_of"]
            evidence = {"trajectory": Evidence.of(ids, row[name])} if ids else None
            section.add(f"value.{name}", row[name], answer, evidence=evidence, by=by)
        if row["not_finite"]:
            section.notes.append(
                f"{row['not_finite']:,} of the rewards that {by['function']} gave are NaN or"
                " infinite"
            )


def _work(section: Section, names: list[str]) -> None:
    answer = section.ask(_SQL["work"])
    rows = {row["function"]: row for row in answer.dicts}
    for name in names:
        row, by = rows.get(name, {}), {"function": name}
        evidence = evidence_of(process=dict.fromkeys(row.get("processes") or ()))
        why = "who waited for it ran it" if row and row["work"] is None else ""
        section.add("function.work", row.get("work"), answer, why=why, evidence=evidence, by=by)
        share = row.get("queue_share")
        queued = None if share is None else max(0.0, share)
        section.add("function.queue_share", queued, answer, by=by)
        before, after = _parts(share, row.get("before_share"))
        section.add("function.before_share", before, answer, why=why, by=by)
        section.add("function.after_share", after, answer, why=why, by=by)


def _parts(share: float | None, first: float | None) -> tuple[float | None, float | None]:
    """What of ``share`` was before the function and after it, if both can be."""
    # Where other calls were recorded on one side than on the other, one may be below 0.
    if share is None or first is None or not -_NOTHING < first < share + _NOTHING:
        return None, None
    return max(0.0, first), max(0.0, share - first)


def _attempts(section: Section, names: list[str]) -> None:
    answer, errors = section.ask(_SQL["attempts"]), section.ask(_SQL["errors"])
    rows, raised = {row["function"]: row for row in answer.dicts}, dict(errors.rows)
    for name in names:
        row, by = rows.get(name, {}), {"function": name}
        late = evidence_of(trajectory=row.get("late"))
        section.add("function.retries", row.get("retries"), answer, by=by)
        section.add("function.timeouts", row.get("timeouts"), answer, evidence=late, by=by)
        section.add("function.errors", raised.get(name), errors, by=by)
