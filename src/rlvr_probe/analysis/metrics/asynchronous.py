"""Asynchronous runs: how old the policy was that a step trained on, and which half waited."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.metrics.families import distribution
from rlvr_probe.analysis.metrics.registry import DEFINITIONS
from rlvr_probe.analysis.metrics.section import Section, evidence_of
from rlvr_probe.analysis.results import Chapter
from rlvr_probe.analysis.samples import is_workload
from rlvr_probe.analysis.statements import covered, fill, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["asynchronous"]

_SQL: Final = statements(__name__)

_WORKLOAD: Final = "a workload does not say which weights generated it, or when"


def asynchronous(tables: Tables) -> Chapter:
    """What training beside rollout costs."""
    section = Section.of_samples(tables, "asynchronous", "Asynchronous training")
    queued, lag = section.ask(_SQL["queue_and_lag"]).row
    if is_workload(tables) or (not queued and lag <= 0):
        synchronous = DEFINITIONS["asynchronous.trainer_wait"].unknown
        why = _WORKLOAD if is_workload(tables) else synchronous
        section.notes.append(why)
        for name in ("trainer_wait", "rollout_wait"):
            section.add(name, None, why=why)
        return section.chapter()
    distribution(section, "lag", _SQL["lag"], counted=True)
    answer = section.ask(_SQL["mixed"])
    [row] = answer.dicts
    section.add("mixed", row["mixed"], answer, evidence=evidence_of(trajectory=row["widest"]))
    answer = section.ask(_SQL["unused"])
    section.add("unused", answer.row[0], answer)
    _waits(section)
    return section.chapter()


def _waits(section: Section) -> None:
    trainer = section.ask(fill(_SQL["trainer_wait"], covered=covered(_SQL["waits"], "process")))
    [row] = trainer.dicts
    why, evidence = "no rank recorded data or wait stages", evidence_of(process=row["processes"])
    section.add("trainer_wait", row["share"], trainer, why=why, evidence=evidence)
    rollout = section.ask(fill(_SQL["rollout_wait"], covered=covered("calls", "run")))
    section.add("rollout_wait", rollout.row[0], rollout, why="no time of a turn was recorded")
    waits = covered(_SQL["waits"], "step_id, process")
    steps = section.ask(fill(_SQL["wait_by_step"], covered=waits))
    if steps.rows:
        section.add_series("wait.by_step", steps)
