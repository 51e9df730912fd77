"""Data movement: what dispatching calls costs, and moving weights to the rollout engine."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.metrics.families import distribution
from rlvr_probe.analysis.metrics.section import Section, evidence_of
from rlvr_probe.analysis.results import Chapter
from rlvr_probe.analysis.samples import is_workload
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["movement"]

_SQL: Final = statements(__name__)

_CALL: Final = (
    "calls", "time", "dispatch", "dispatch_share", "dispatch_mean", "dispatch_p50", "dispatch_p99",
    "dispatch_max",
)  # fmt: skip


def movement(tables: Tables) -> Chapter:
    """What it takes to move data and weights."""
    section = Section(tables, "movement", "Data movement")
    _calls(section)
    distribution(section, "dispatch", _SQL["dispatch"])
    spread = distribution(section, "weight_sync", _SQL["weight_sync"])
    steps = section.ask(_SQL["synced_steps"])
    [row] = steps.dicts
    known = spread.mean is not None and row["seconds"]
    share = spread.count * (spread.mean or 0.0) / row["seconds"] if known else None
    section.add("weight_sync.share", share, steps, evidence=evidence_of(step=row["steps"]))
    section.notes.append(
        "a workload does not say how data and weights are moved"
        if is_workload(tables)
        else "resharding has no stage of its own: it is inside the calls and stages that do it"
    )
    return section.chapter()


def _calls(section: Section) -> None:
    answer = section.ask(_SQL["calls"])
    for row in answer.dicts:
        evidence = evidence_of(step=row["steps"], process=dict.fromkeys(row["slowest"] or ()))
        by = {"method": row["method"]}
        for name in _CALL:
            section.add(f"call.{name}", row[name], answer, evidence=evidence, by=by)
        if row["odd"]:
            section.notes.append(
                f"{row['odd']:,} calls of {row['method']} lasted longer on a rank than for their"
                " caller: they did not wait, and count as dispatched in no time"
            )
    if not answer.rows:
        section.add("call.dispatch", None, answer)
        return
    section.add_series("call.by_step", section.ask(_SQL["calls_by_step"]))
