"""Asynchronous runs: how old the policy was that a step trained on, and which half waited."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.chapters.definitions import (
    Definition,
    Found,
    SeriesDefinition,
    evidence_of,
)
from rlvr_probe.analysis.chapters.distributions import Quantity, ask
from rlvr_probe.analysis.chapters.samples import is_workload, prepare
from rlvr_probe.analysis.figures import Chapter, query
from rlvr_probe.analysis.islands import covered
from rlvr_probe.analysis.statements import fill, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["DEFINITIONS", "SERIES", "asynchronous"]

_SQL: Final = statements(__name__)

_SYNCHRONOUS: Final = "rollout and training take turns: nothing is generated beside the training"
_WORKLOAD: Final = "a workload does not say which weights generated it, or when"

_LAG: Final = Quantity(
    "asynchronous.lag",
    "policy lag",
    "trainer steps that were done when a step first trained on a trajectory, less those that the"
    " oldest weights it saw had done (step.number - 1 - trajectory.policy_version_min, or"
    " .policy_version)",
    "1",
    _SQL["lag"],
    "which weights generated a trajectory, or which step trained on it, was not recorded",
    by_step=True,
)
_MIXED: Final = Definition(
    "asynchronous.mixed",
    "trajectories of several policies",
    "Share of trajectories during which weights changed (trajectory.policy_version_min <"
    " .policy_version_max).",
    "1",
    "weights at the begin and the end of a trajectory were not recorded",
)
_STALE: Final = Definition(
    "asynchronous.unused",
    "share of response tokens thrown away",
    "Response tokens of groups that were generated and, as is known, never trained on, over those"
    " of all groups of which it is known (prompt_group.used).",
    "1",
    "which groups were trained on was not recorded",
)
_TRAINER: Final = Definition(
    "asynchronous.trainer_wait",
    "trainer waiting for rollout",
    "Time that ranks spend fetching data and waiting (stages data and wait, each moment once) over"
    " that from the begin of their first such span or step to the end of the last, of all ranks.",
    "1",
    _SYNCHRONOUS,
)
_ROLLOUT: Final = Definition(
    "asynchronous.rollout_wait",
    "rollout waiting",
    "Share of the time from the first step's begin to the last one's end in which no turn of any"
    " trajectory was open: the queue is full, weights are moved, or all trajectories are in tools"
    " (turn, engine_call).",
    "1",
    _SYNCHRONOUS,
)
_BY_STEP: Final = SeriesDefinition(
    "asynchronous.wait.by_step",
    "waiting of the trainer by step",
    "Mean over ranks of the time of stages data and wait in a step, and the length of its step"
    " spans.",
    {"step": "", "wait": "s", "seconds": "s"},
)
DEFINITIONS: Final = (*_LAG.definitions, _MIXED, _STALE, _TRAINER, _ROLLOUT)
SERIES: Final = (_LAG.series, _BY_STEP)


def asynchronous(tables: Tables) -> Chapter:
    """What training beside rollout costs."""
    found = Found("asynchronous", "Asynchronous training")
    found.notes += prepare(tables)
    if is_workload(tables):
        found.notes.append(_WORKLOAD)
        found.add(*(one.of(None, why=_WORKLOAD) for one in (_TRAINER, _ROLLOUT)))
        return found.chapter()
    queued, lag = query(tables, _SQL["queue_and_lag"]).row
    if not queued and lag <= 0:
        found.notes.append(_SYNCHRONOUS)
        found.add(*(one.of(None, why=_SYNCHRONOUS) for one in (_TRAINER, _ROLLOUT)))
        return found.chapter()
    ask(tables, found, _LAG)
    answer = query(tables, _SQL["mixed"])
    [told] = answer.dicts
    found.add(_MIXED.of(told["mixed"], answer, evidence=evidence_of(trajectory=told["widest"])))
    answer = query(tables, _SQL["unused"])
    found.add(_STALE.of(answer.row[0], answer))
    _waits(tables, found)
    return found.chapter()


def _waits(tables: Tables, found: Found) -> None:
    trainer = query(tables, fill(_SQL["trainer_wait"], covered=covered(_SQL["waits"], "process")))
    [told] = trainer.dicts
    found.add(
        _TRAINER.of(
            told["share"],
            trainer,
            why="no rank told of fetching data or of waiting",
            evidence=evidence_of(process=told["processes"]),
        )
    )
    rollout = query(tables, fill(_SQL["rollout_wait"], covered=covered("calls", "run")))
    found.add(_ROLLOUT.of(rollout.row[0], rollout, why="no time of a turn was recorded"))
    steps = query(
        tables, fill(_SQL["wait_by_step"], covered=covered(_SQL["waits"], "step_id, process"))
    )
    if steps.rows:
        found.series.append(_BY_STEP.of(steps))
