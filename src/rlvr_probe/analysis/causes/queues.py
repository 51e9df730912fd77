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
from rlvr_probe.analysis.statements import statements

__all__ = ["queues"]

_SQL: Final = statements(__name__)


def queues(run: Run) -> list[Cause]:
    """Which of both waits, of an asynchronous run."""
    [beside] = run.ask(_SQL["asynchronous"]).row
    return [*_starving(run), *_waiting(run)] if beside else []


def _starving(run: Run) -> list[Cause]:
    answer = run.ask(_SQL["fetched"])
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
    fetched = run.ask(_SQL["fetched"]).dicts
    if len(fetched) < 2 or fetched[0]["ns"] <= 0:
        return []
    begin, until = fetched[0]["start_ns"], fetched[0]["end_ns"]
    # Until the first trajectories are in the middle of their responses, fewer tokens come.
    since = begin + (until - begin) // 5
    [ended_ns] = run.ask(_SQL["ended"]).row
    wall = ended_ns - begin
    answer = run.ask(_SQL["generated"], since=since, until=until, wall=wall)
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
