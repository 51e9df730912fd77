"""Rewards: which functions take how long, whether they queue, and how many run at a time."""

from __future__ import annotations

import math
from typing import Final

from rlvr_probe.analysis.chapters.calls import Calls
from rlvr_probe.analysis.chapters.definitions import (
    MOST_ROWS,
    Definition,
    Found,
    SeriesDefinition,
    evidence_of,
)
from rlvr_probe.analysis.chapters.distributions import Quantity, ask
from rlvr_probe.analysis.chapters.samples import is_workload, prepare
from rlvr_probe.analysis.figures import Chapter, Evidence, query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["DEFINITIONS", "SERIES", "TABLES", "rewards"]

_SQL: Final = statements(__name__)

_CALLS: Final = Calls(
    "rewards.function",
    "function",
    "the calls of a reward function for trajectories of training, as who waited for them saw them"
    " (verification, reward_call)",
    _SQL["calls"],
    "no call of a reward function was recorded",
    time="time waited for",
)
_NOTHING: Final = 1e-6
"""A share that moments in whole nanoseconds can be off by."""

_UNPLACED: Final = (
    "not each of its calls was recorded on both sides, or they were on machines with clocks apart"
)
_WORK: Final = (
    Definition(
        "rewards.function.work",
        "time of the function itself",
        "Sum of the durations of the function where it ran, of verifications that somebody else"
        " waited for (reward_work, span reward_fn), evaluation included.",
        "s",
        "of verifications only the wait for them was recorded",
        by=("function",),
    ),
    Definition(
        "rewards.function.queue_share",
        "share of the wait in queues and on the way",
        "1 - mean duration of the function where it ran (reward_work, span reward_fn) / mean"
        " duration as who waited for it saw it (verification), evaluation included; 0 where who"
        " waited ran it (reward_call).",
        "1",
        "of verifications only the wait for them was recorded",
        by=("function",),
    ),
    Definition(
        "rewards.function.before_share",
        "share of the wait before the function began",
        "Mean moment when it began where it ran - mean moment when who waited for it asked"
        " (verification), over the mean duration of the latter, evaluation included: the queue and"
        " the way there. Of the same number of calls on either side, on one machine.",
        "1",
        _UNPLACED,
        by=("function",),
    ),
    Definition(
        "rewards.function.after_share",
        "share of the wait after the function ended",
        "queue_share - before_share: the way back, in which nothing queues for a function.",
        "1",
        _UNPLACED,
        by=("function",),
    ),
)
_ATTEMPTS: Final = (
    Definition(
        "rewards.function.retries",
        "requests beyond the first",
        "Sum of verification.attempts - 1, of verifications of training by a service.",
        "1",
        "no service was asked, or its requests were not recorded",
        by=("function",),
    ),
    Definition(
        "rewards.function.timeouts",
        "requests nobody answered in time",
        "Sum of verification.timeouts, of verifications of training by a service.",
        "1",
        "no service was asked, or its requests were not recorded",
        by=("function",),
    ),
    Definition(
        "rewards.function.errors",
        "calls that raised",
        "Number of calls that an exception ended (span reward_fn, reward_work), evaluation"
        " included.",
        "1",
        "no call of it is a span",
        by=("function",),
    ),
)
_VALUES: Final = tuple(
    Definition(
        f"rewards.value.{name}",
        title,
        f"How often the function gave {what}, for trajectories of training (reward.value).",
        "1",
        "no reward was recorded",
        by=("function",),
    )
    for name, title, what in (
        ("finite", "rewards", "a finite number"),
        ("not_finite", "rewards that are NaN or infinite", "NaN or infinity"),
        ("missing", "rewards missing", "nothing"),
    )
)
_ALIKE: Final = "a workload does not tell a reward that is NaN or infinite from none"
_TRAJECTORY: Final = Definition(
    "rewards.trajectory_share",
    "share of a trajectory's time",
    "Sum of the durations of verifications over that of trajectories, where these have times of"
    " their own (verification, trajectory).",
    "1",
    "no trajectory with times of its own was verified by itself",
)
_SKEW: Final = Quantity(
    "rewards.skew",
    "slowest over fastest process of a reward",
    "the longest over the shortest time that processes take for the reward functions of their parts"
    " of a batch (reward_call)",
    "1",
    _SQL["skew"],
    "no two processes called reward functions for one batch",
    ids="batch",
)
_WAIT: Final = Definition(
    "rewards.wait_share",
    "share of reward time spent waiting for the slowest",
    "1 - sum over batches of the mean over that of the longest time that processes take for the"
    " reward functions of their parts of a batch (reward_call): what a barrier after them costs.",
    "1",
    "no two processes called reward functions for one batch",
)
_BY_PROCESS: Final = SeriesDefinition(
    "rewards.by_process",
    "reward functions by batch and process",
    "Time that each process takes for the reward functions of its part of a batch, and trajectories"
    " in it, each once: those of the function that has most (reward_call).",
    {"batch_id": "", "step": "", "process": "", "seconds": "s", "samples": "1"},
)
DEFINITIONS: Final = (
    *_CALLS.definitions, *_VALUES, *_WORK, *_ATTEMPTS, *_SKEW.definitions, _WAIT, _TRAJECTORY,
)  # fmt: skip
SERIES: Final = (_CALLS.series, _BY_PROCESS)
TABLES: Final = _CALLS.tables


def rewards(tables: Tables) -> Chapter:
    """What verification takes."""
    found = Found("rewards", "Rewards")
    found.notes += prepare(tables)
    names = [name for name in _CALLS.ask(tables, found) if name is not None]
    _values(tables, found)
    _work(tables, found, names)
    _attempts(tables, found, names)
    ask(tables, found, _SKEW)
    _ranks(tables, found)
    answer = query(tables, _SQL["trajectory_share"]) if names else None
    found.add(_TRAJECTORY.of(answer.row[0] if answer else None, answer))
    if names:
        found.notes.append(
            "data sources are not recorded: where each has a reward function of its own, that tells"
        )
    return found.chapter()


def _ranks(tables: Tables, found: Found) -> None:
    answer = query(tables, _SQL["wait_share"])
    found.add(_WAIT.of(answer.row[0], answer))
    [rows] = query(tables, _SQL["ranks_count"]).row
    answer = query(
        tables,
        _SQL["by_process"],
        every=math.ceil(rows / MOST_ROWS) or 1,
    )
    if answer.rows:
        found.series.append(_BY_PROCESS.of(answer, rows))


def _values(tables: Tables, found: Found) -> None:
    answer = query(tables, _SQL["values"])
    for row in answer.dicts:
        by = {"function": row["function"] or "(unknown)"}
        # The format has one word for both.
        alike = is_workload(tables) and row["missing"] > 0
        for one in _VALUES:
            name = one.id.rpartition(".")[2]
            if alike and name != "finite":
                found.add(one.of(None, answer, why=_ALIKE, by=by))
                continue
            some = row[f"{name}_of"]
            behind = {"trajectory": Evidence.of(some, row[name])} if some else None
            found.add(one.of(row[name], answer, evidence=behind, by=by))
        if row["not_finite"]:
            found.notes.append(
                f"{row['not_finite']:,} of the rewards that {by['function']} gave are NaN or"
                " infinite"
            )


def _work(tables: Tables, found: Found, names: list[str]) -> None:
    answer = query(tables, _SQL["work"])
    told = {row["function"]: row for row in answer.dicts}
    work, queue, before, after = _WORK
    for name in names:
        row = told.get(name, {})
        by = {"function": name}
        behind = evidence_of(process=dict.fromkeys(row.get("processes") or ()))
        why = "who waited for it ran it" if row and row["work"] is None else ""
        found.add(work.of(row.get("work"), answer, why=why, evidence=behind, by=by))
        share = row.get("queue_share")
        found.add(queue.of(None if share is None else max(0.0, share), answer, by=by))
        first, last = _parts(share, row.get("before_share"))
        found.add(
            *(
                one.of(part, answer, why=why, by=by)
                for one, part in ((before, first), (after, last))
            )
        )


def _parts(share: float | None, first: float | None) -> tuple[float | None, float | None]:
    """What of ``share`` was before the function and after it, if both can be."""
    # Where other calls were recorded on one side than on the other, one may be below 0.
    if share is None or first is None or not -_NOTHING < first < share + _NOTHING:
        return None, None
    return max(0.0, first), max(0.0, share - first)


def _attempts(tables: Tables, found: Found, names: list[str]) -> None:
    answer = query(tables, _SQL["attempts"])
    errors = query(tables, _SQL["errors"])
    told = {row["function"]: row for row in answer.dicts}
    raised = dict(errors.rows)
    retries, timeouts, failed = _ATTEMPTS
    for name in names:
        row = told.get(name, {})
        by = {"function": name}
        found.add(
            retries.of(row.get("retries"), answer, by=by),
            timeouts.of(
                row.get("timeouts"), answer, evidence=evidence_of(trajectory=row.get("late")), by=by
            ),
            failed.of(raised.get(name), errors, by=by),
        )
