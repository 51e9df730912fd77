"""Weights and trajectories between training and rollout, of which one waits for the other.

How many bytes of weights move is not recorded, so how long it should take is not known. Within a
run there is one thing to compare it with: a checkpoint writes the same weights, with the
optimizer's, to a disk. Moving them from GPU to GPU should take a small part of that. Where no
checkpoint was written, the share of the run is all there is. What it costs is what it takes longer
than is usual beside either.

A trainer that finds too few groups in its queue waits while it fetches data; the first wait, until
the queue is first filled, is inevitable. Rollout that finds its queue full starts nothing new: it
goes on with fewer trajectories than while the queue was first filled, and what it could have
generated in that time says how much faster the run could be. In which steps that was lost is not
recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from rlvr_probe.analysis.causes import thresholds
from rlvr_probe.analysis.causes.builder import Run
from rlvr_probe.analysis.causes.cause import Cause, Saving, per_cent, seconds, times
from rlvr_probe.analysis.results import Answer, query_by_step
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = [
    "fetched_by_step", "is_asynchronous", "moved_by_step", "own_pace_by_step", "pace_by_step",
    "queues", "replay_weights", "slow_weight_sync",
]  # fmt: skip

_SQL: Final = statements(__name__)


def moved_by_step(run: Run, what: str) -> list[tuple[int, float]]:
    """``step_id`` and ns of moving weights (``weight_sync``), or of a ``checkpoint``."""
    return [(step, ns) for step, kind, ns in run.ask(_SQL["moved"]).rows if kind == what]


def replay_weights(run: Run, usual_ns: float) -> Answer:
    """Wall time of each step, ns, that weights which move in that time would save."""
    return run.ask(_SQL["left"], usual=float(usual_ns))


def slow_weight_sync(run: Run) -> list[Cause]:
    """Weights that take long to move, by the time of a checkpoint or by their share of the run."""
    moved = sorted(ns for _, ns in moved_by_step(run, "weight_sync"))
    saved = sorted(ns for _, ns in moved_by_step(run, "checkpoint"))
    if not moved:
        return []
    typical = moved[len(moved) // 2]
    share = sum(moved) / run.extent.wall_ns
    limit = thresholds.SYNC_SHARE_ASYNCHRONOUS if is_asynchronous(run) else thresholds.SYNC_SHARE
    title = f"moving weights takes {seconds(typical)} a step"
    if saved:
        checkpoint = saved[len(saved) // 2]
        if typical < thresholds.SYNC_OF_CHECKPOINT * checkpoint:
            return []
        title += f", {times(typical / checkpoint)} the time of a checkpoint"
        usual = thresholds.SYNC_USUAL_OF_CHECKPOINT * checkpoint
    elif share < limit:
        return []
    else:
        usual = thresholds.SYNC_USUAL * run.extent.wall_ns / run.extent.steps
    return run.cause("slow_weight_sync", title, replay_weights(run, usual))


def queues(run: Run) -> list[Cause]:
    """Which of both waits, of an asynchronous run."""
    if not is_asynchronous(run):
        return []
    fetched = fetched_by_step(run)
    return [*_starving(run, fetched), *_waiting(run, fetched.dicts)]


def is_asynchronous(run: Run) -> bool:
    """Whether rollout goes on beside the training."""
    return bool(run.ask(_SQL["asynchronous"]).row[0])


def fetched_by_step(run: Run) -> Answer:
    """How long the trainer waited for its queue in each step."""
    return run.ask(_SQL["fetched"])


def pace_by_step(tables: Tables) -> list[tuple[int, float]]:
    """``step_id`` and ns of a token, of what asynchronous rollout generated for it.

    That of the first step is its warm-up; what was started meanwhile for the second is omitted.
    """
    rows = query_by_step(tables, _SQL["paces"], beside=True).rows
    first, *later = [(step, ns) for step, ns, _ in rows] or [(0, 0.0)]
    late = len(later) > 1 and later[0][1] > thresholds.LONGER * later[1][1]
    return [first, *later[late:]]


def own_pace_by_step(tables: Tables) -> dict[int, tuple[float, float]]:
    """By ``step_id``, of what a step generated: ns of a token, and share of turns in trajectories.

    Empty without times of its turns.
    """
    rows = query_by_step(tables, _SQL["paces"], beside=False).rows
    return {step: (ns, share) for step, ns, share in rows if share and share > 0}


def _starving(run: Run, answer: Answer) -> list[Cause]:
    waits = {row["step_id"]: row["ns"] for row in answer.dicts[1:]}
    if not waits:
        return []
    lasted = run.extent.wall_ns / run.extent.steps
    late = [step for step, ns in waits.items() if ns > 0.01 * lasted]
    # Until a step finds all that it needs the queue fills, unless it hardly ever does.
    filling = [*takewhile(late.__contains__, waits)]
    if len(filling) < len(late) / 2:
        waits = {step: ns for step, ns in waits.items() if step not in filling}
        late = late[len(filling) :]
    saving, many = Saving(waits), len(late)
    often = run.share(
        saving
    ) >= thresholds.STARVED_OFTEN and many >= thresholds.MANY_STEPS_STARVED * len(waits)
    if not (often or run.share(saving) >= thresholds.STARVED):
        return []
    run.usual["starving_trainer"] = thresholds.STARVED_USUAL
    title = (
        f"the trainer waited for rollout in {many} of {len(waits)} steps,"
        f" {seconds(saving.wall_ns / len(waits))} a step"
    )
    return run.cause("starving_trainer", title, answer, saving)


def _waiting(run: Run, fetched: Sequence[Mapping[str, Any]]) -> list[Cause]:
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
    if slack_ns < thresholds.EMPTY_SLACK * wall:
        return []
    # Sound runs have some slack as well: of the shorter wall time without this cause.
    saved_ns = (slack_ns - thresholds.EMPTY_USUAL * wall) / (1 - thresholds.EMPTY_USUAL)
    saving = Saving(whole_ns=float(saved_ns))
    run.allowed["waiting_rollout"] = (thresholds.EMPTY_SLACK - thresholds.EMPTY_USUAL) / (
        1 - thresholds.EMPTY_USUAL
    )
    busy = row["usually_at_once"] / row["at_once"] if row["at_once"] else 0.0
    title = (
        "rollout waited for the trainer: the queue was full, and it had"
        f" {per_cent(busy)} of the trajectories in flight that it can have"
    )
    return run.cause("waiting_rollout", title, answer, saving)
