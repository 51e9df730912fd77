"""Imbalance between dp ranks, replicas and workers: the largest over the mean, less 1."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from rlvr_probe.analysis.metrics.families import distribution
from rlvr_probe.analysis.metrics.occupancy import observe, observed
from rlvr_probe.analysis.metrics.section import MOST_ROWS, Section, evidence_of
from rlvr_probe.analysis.results import Chapter
from rlvr_probe.analysis.samples import is_workload
from rlvr_probe.analysis.statements import fill, make, statements
from rlvr_probe.analysis.statistics import student
from rlvr_probe.recording.tables import Tables

__all__ = ["TABLES", "imbalance"]

_SQL: Final = statements(__name__)

TABLES: Final = {
    f"{name}_load": (
        f"responses that each {name} generated of a batch",
        fill(_SQL["load"], member=member),
    )
    for name, member in (("replica", "coalesce(engine, process)"), ("worker", "process"))
}
"""By name: what a row is, and the query that makes it."""

_LOADS: Final = {
    "replica.tokens": fill(_SQL["tokens"], name="replica", column="tokens"),
    "replica.longest": fill(_SQL["tokens"], name="replica", column="longest"),
    "replica.time": _SQL["replica_time"],
    "worker.tokens": fill(_SQL["tokens"], name="worker", column="tokens"),
}
"""What members of a team carry, whose largest share the others wait for: SQL with columns ``unit``
(a batch or a step), ``member``, ``value`` and ``trajectory_id`` (the longest or last of them)."""


def imbalance(tables: Tables) -> Chapter:
    """How unevenly work is spread."""
    section = Section.of_samples(tables, "imbalance", "Imbalance")
    make(tables, TABLES)
    if not observed(tables):
        observe(tables, None)
    for name, rows in _LOADS.items():
        distribution(section, name, fill(_SQL["imbalance"], rows=rows))
    [count] = section.ask(_SQL["replicas"]).row
    every = math.ceil(count / MOST_ROWS) or 1
    section.add_series("replica.by_batch", section.ask(_SQL["by_batch"], every=every), count)
    _ranks(section, "rank.time", "stage", _SQL["stages"], "process")
    _ranks(section, "rank.call_time", "method", _SQL["calls"], "rank")
    if not is_workload(tables):
        section.notes.append(
            "which trajectories a rank trains on is not recorded: tokens are of who generated them"
        )
    return section.chapter()


def _ranks(section: Section, name: str, kind: str, rows: str, member: str) -> None:
    answer = section.ask(fill(_SQL["ranks"], rows=rows))
    for row in answer.dicts:
        mean, error = row["mean"], row["error"]
        slowest = [who for who, _ in Counter(row["slowest"]).most_common(5)]
        worst = {"step": row["worst"]} if kind == "stage" else {}
        half = math.nan if error is None else student(row["units"] - 1) * error
        low, high = None if error is None else max(0.0, mean - half), mean + half
        evidence, by = evidence_of(**{member: slowest}, **worst), {kind: row["what"]}
        section.add(name, mean, answer, low=low, high=high, evidence=evidence, by=by)
    if not answer.rows:
        section.add(name, None, answer)
