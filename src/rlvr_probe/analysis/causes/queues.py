"""Training and rollout beside each other, of which one waits for the other.

A trainer that finds too few groups in its queue waits while it fetches data; the first time, until
the queue is filled at all, is nobody's fault. Rollout that finds its queue full begins nothing new:
it goes on with fewer trajectories than while the queue was first filled, and what it could have
generated in that time is how much faster the whole could be. In which steps that was lost, nothing
tells.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.causes.cause import Cause, Saving
from rlvr_probe.analysis.causes.finding import Run
from rlvr_probe.analysis.causes.thresholds import (
    EMPTY_SLACK,
    EMPTY_USUAL,
    MANY_STEPS_STARVED,
    STARVED,
    STARVED_OFTEN,
)
from rlvr_probe.analysis.causes.words import per_cent, seconds

__all__ = ["queues"]

_FETCHED: Final = """
SELECT step_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
       max(end_ns - start_ns)::DOUBLE AS ns
FROM kept_span
WHERE name = 'data' AND mode IS DISTINCT FROM 'eval' AND step_id IS NOT NULL
  AND start_ns IS NOT NULL AND end_ns IS NOT NULL
GROUP BY step_id ORDER BY start_ns
"""
"""How long the trainer waited for the data of each step."""

_GENERATED: Final = """
WITH calls AS (
    SELECT start_ns, end_ns, response_tokens FROM turn
    UNION ALL SELECT start_ns, end_ns, response_tokens FROM engine_call
), first AS (
    SELECT sum(response_tokens::DOUBLE
               * greatest(0, least(end_ns, $until) - greatest(start_ns, $since))
               / (end_ns - start_ns)) / ($until - $since) AS tokens_per_ns,
           sum(greatest(0, least(end_ns, $until) - greatest(start_ns, $since))::DOUBLE)
           / ($until - $since) AS at_once
    FROM calls WHERE end_ns > start_ns AND start_ns < $until
), moving AS (
    SELECT coalesce(sum(ns), 0) AS ns FROM (
        SELECT max(end_ns - start_ns) AS ns FROM kept_span
        WHERE name = 'weight_sync' AND mode IS DISTINCT FROM 'eval' GROUP BY step_id)
)
SELECT sum(response_tokens) AS tokens, any_value(f.tokens_per_ns) AS tokens_per_ns,
       any_value(m.ns) AS moving_ns, any_value(f.at_once) AS at_once,
       sum((end_ns - start_ns)::DOUBLE) / $wall AS usually_at_once
FROM calls, first AS f, moving AS m
"""
"""Tokens of the run, and how fast they were generated while the queue was first filled."""


def queues(run: Run) -> list[Cause]:
    """Which of both waits, of an asynchronous run."""
    [[beside]] = run.tables.sql.execute("SELECT asynchronous FROM run").fetchall()
    return [*_starving(run), *_waiting(run)] if beside else []


def _starving(run: Run) -> list[Cause]:
    answer = run.ask(_FETCHED)
    waits = {row["step_id"]: row["ns"] for row in answer.dicts[1:]}
    if not waits:
        return []
    saving = Saving(waits)
    lasted = run.extent.wall_ns / run.extent.steps
    many = sum(ns > 0.01 * lasted for ns in waits.values())
    often = run.share(saving) >= STARVED_OFTEN and many >= MANY_STEPS_STARVED * len(waits)
    if run.is_noise(saving) or not (often or run.share(saving) >= STARVED):
        return []
    title = (
        f"the trainer waited for rollout in {many} of {len(waits)} steps,"
        f" {seconds(saving.wall_ns / len(waits))} a step"
    )
    return [run.cause("starving_trainer", saving, title, answer)]


def _waiting(run: Run) -> list[Cause]:
    fetched = run.ask(_FETCHED).dicts
    if len(fetched) < 2 or fetched[0]["ns"] <= 0:
        return []
    begin, until = fetched[0]["start_ns"], fetched[0]["end_ns"]
    # Until the first trajectories are in the middle of their responses, fewer tokens come.
    since = begin + (until - begin) // 5
    [[ended_ns]] = run.tables.sql.execute("SELECT max(end_ns) FROM kept_step").fetchall()
    wall = ended_ns - begin
    answer = run.ask(_GENERATED, since=since, until=until, wall=wall)
    row = answer.dicts[0]
    if not row["tokens"] or not row["tokens_per_ns"]:
        return []
    slack_ns = wall - row["tokens"] / row["tokens_per_ns"] - float(row["moving_ns"])
    if slack_ns < EMPTY_SLACK * wall:
        return []
    # Sound runs have some slack as well: of the shorter wall time without this cause.
    saved_ns = (slack_ns - EMPTY_USUAL * wall) / (1 - EMPTY_USUAL)
    saving = Saving(whole_ns=float(saved_ns))
    busy = row["usually_at_once"] / row["at_once"] if row["at_once"] else 0.0
    title = (
        "rollout waited for the trainer: the queue was full, and it had"
        f" {per_cent(busy)} of the trajectories on their way that it can have"
    )
    return [run.cause("waiting_rollout", saving, title, answer)]
