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
from rlvr_probe.analysis.figures import Chapter, largest, query
from rlvr_probe.analysis.islands import covered
from rlvr_probe.recording.tables import Tables

__all__ = ["DEFINITIONS", "SERIES", "asynchronous"]

_SYNCHRONOUS: Final = "rollout and training take turns: nothing is generated beside the training"
_WORKLOAD: Final = "a workload does not say which weights generated it, or when"
TRAINED: Final = """
    SELECT sample.*, step.step_id AS trained_id, step.number AS trained,
      step.number - 1 - coalesce(policy_version_min, policy_version) AS lag
    FROM sample LEFT JOIN trained USING (batch_id, grp)
    JOIN step ON step.step_id = coalesce(
      trained.step_id, CASE WHEN unit >= 0 THEN sample.step_id END)
    WHERE superseded_by IS NULL
    """
"""Trajectories with the step that first trained on them, and how old they were to it."""

_LAG: Final = Quantity(
    "asynchronous.lag",
    "policy lag",
    "trainer steps that were done when a step first trained on a trajectory, less those that the"
    " oldest weights it saw had done (step.number - 1 - trajectory.policy_version_min, or"
    " .policy_version)",
    "1",
    "SELECT lag AS value, hash(batch_id, grp) AS cluster, trajectory_id, trained AS step,"
    f" trained_id AS unit FROM ({TRAINED})",
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

_WAITS: Final = """
    SELECT process, step_id, start_ns, end_ns
    FROM kept_span AS span SEMI JOIN (FROM process WHERE rank IS NOT NULL) USING (process)
    WHERE name IN ('data', 'wait') AND mode IS DISTINCT FROM 'eval'
    """


def asynchronous(tables: Tables) -> Chapter:
    """What training beside rollout costs."""
    found = Found("asynchronous", "Asynchronous training")
    found.notes += prepare(tables)
    if is_workload(tables):
        found.notes.append(_WORKLOAD)
        found.add(*(one.of(None, why=_WORKLOAD) for one in (_TRAINER, _ROLLOUT)))
        return found.chapter()
    queued, lag = query(
        tables,
        """
        SELECT coalesce(bool_or(unit < 0), false),
          coalesce(max(number - 1 - coalesce(policy_version_min, policy_version)), 0)
        FROM sample
        """,
    ).row
    if not queued and lag <= 0:
        found.notes.append(_SYNCHRONOUS)
        found.add(*(one.of(None, why=_SYNCHRONOUS) for one in (_TRAINER, _ROLLOUT)))
        return found.chapter()
    ask(tables, found, _LAG)
    answer = query(
        tables,
        f"""
        SELECT avg((policy_version_min < policy_version_max)::INTEGER) AS mixed,
          {largest("trajectory_id", "policy_version_max - policy_version_min", 20)} AS widest
        FROM sample
        """,
    )
    [told] = answer.dicts
    found.add(_MIXED.of(told["mixed"], answer, evidence=evidence_of(trajectory=told["widest"])))
    answer = query(
        tables,
        """
        SELECT sum(response_tokens) FILTER (NOT used)
          / nullif(sum(response_tokens) FILTER (used IS NOT NULL), 0)
        FROM sample JOIN prompt_group USING (batch_id, grp)
        """,
    )
    found.add(_STALE.of(answer.row[0], answer))
    _waits(tables, found)
    return found.chapter()


def _waits(tables: Tables, found: Found) -> None:
    trainer = query(
        tables,
        f"""
        SELECT sum(waited) / nullif(sum(whole), 0) AS share, list(process) AS processes FROM (
          SELECT process, ns AS waited FROM ({covered(f"({_WAITS})", "process")})
        ) JOIN (
          SELECT process, max(end_ns) - min(start_ns) AS whole FROM kept_span
          WHERE name IN ('step', 'data', 'wait') GROUP BY process
        ) USING (process)
        """,
    )
    [told] = trainer.dicts
    found.add(
        _TRAINER.of(
            told["share"],
            trainer,
            why="no rank told of fetching data or of waiting",
            evidence=evidence_of(process=told["processes"]),
        )
    )
    rollout = query(
        tables,
        f"""
        WITH training AS (
          SELECT min(step_start_ns) AS begin_ns, max(step_end_ns) AS until_ns FROM kept_step
        ), calls AS (
          SELECT 0 AS run, greatest(start_ns, begin_ns) AS start_ns,
            least(end_ns, until_ns) AS end_ns
          FROM (SELECT start_ns, end_ns FROM turn UNION ALL SELECT start_ns, end_ns
            FROM engine_call), training
          WHERE end_ns > begin_ns AND start_ns < until_ns
        )
        SELECT 1 - sum(ns) / any_value(until_ns - begin_ns)
        FROM ({covered("calls", "run")}), training
        """,
    )
    found.add(_ROLLOUT.of(rollout.row[0], rollout, why="no time of a turn was recorded"))
    steps = query(
        tables,
        f"""
        SELECT number AS step, sum(ns) / 1e9 / count(DISTINCT process) AS wait,
          any_value(step_end_ns - step_start_ns) / 1e9 AS seconds
        FROM ({covered(f"({_WAITS})", "step_id, process")}) JOIN (
          SELECT step_id, number, step_start_ns, step_end_ns FROM step) USING (step_id)
        GROUP BY step_id, number ORDER BY step_id
        """,
    )
    if steps.rows:
        found.series.append(_BY_STEP.of(steps))
