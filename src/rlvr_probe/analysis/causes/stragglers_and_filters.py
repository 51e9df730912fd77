"""Single trajectories that a whole step waited for, and filters that make it generate again.

What the longest trajectory costs a step is how much later it ends than all others of its batch, as
far as it generated for longer. Where a rank generates its rows in calls of their own, it is what
these would have been shorter by, at the pace that the longest trajectory of a call and its time
have in common in the run, as far as no other rank is as late.

Lengths have heavy tails by nature. A straggler is one of which the run's own tail leads to expect
less than one in a thousand: the tail is that of Hill's estimator over the longest of all others,
and the worst of three sizes of it counts. A trajectory that was cut at the cap is none.

A filter may throw away so many groups that a step has to generate again. What the step lasts longer
is the time from the end of its first generation to that of its last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rlvr_probe.analysis.causes.builder import Run
from rlvr_probe.analysis.causes.cause import Cause, Saving, per_cent, seconds
from rlvr_probe.analysis.causes.thresholds import FEW_KEPT, LONG_TAIL_SHARE, RARE, TAIL
from rlvr_probe.analysis.results import Answer, Evidence
from rlvr_probe.analysis.statements import statements

__all__ = ["aggressive_filter", "stragglers"]

_SQL: Final = statements(__name__)


def stragglers(run: Run) -> list[Cause]:
    """The worst single trajectory, if it is worse than the run's tail, or costs much by itself."""
    answer = run.ask(_SQL["last"])
    if not answer.rows:
        answer = run.ask(_SQL["longest"])
    cost = sorted((row for row in answer.dicts if row["ns"]), key=lambda row: -row["ns"])
    if not cost:
        return []
    worst, ns = cost[0], cost[0]["ns"]
    rows = run.ask(_SQL["trajectory"], trajectory=worst["trajectory_id"]).dicts
    if not rows or not rows[0]["response_tokens"]:
        return []
    longest = _longest(run, worst["trajectory_id"])
    saving = Saving({worst["step_id"]: ns})
    if not rows[0]["truncated"] and _expected(longest, rows[0]["response_tokens"]) < RARE:
        return _named(run, "straggler", saving, rows[0], longest, answer)
    if ns >= LONG_TAIL_SHARE * run.extent.wall_ns:
        return _named(run, "long_tail", saving, rows[0], longest, answer)
    return []


def _named(
    run: Run, kind: str, saving: Saving, row: Mapping[str, Any], longest: Sequence[int],
    answer: Answer,
) -> list[Cause]:  # fmt: skip
    number, ns = run.number(row["step_id"]), saving.wall_ns
    where = {"step": number, "group": row["grp"], "sample": row["sample"], "batch": row["ordinal"]}
    tokens = row["response_tokens"]
    cut = ", cut at the cap," if row["truncated"] else ""
    other = f"; the longest other of the run has {longest[0]:,}" if longest else ""
    title = (
        f"step {number} waited {seconds(ns)} for one trajectory of {tokens:,} tokens{cut} (sample"
        f" {row['sample']} of group {row['grp']}{other})"
    )
    place = next(
        (f" on {name} {row[name]}" for name in ("engine", "rank") if row[name] is not None), ""
    )
    worst = [
        f"step {number}, batch {row['ordinal']}, group {row['grp']}, sample {row['sample']}:"
        f" {tokens:,} tokens{place}"
    ]
    evidence = {"trajectory": Evidence.of([row["trajectory_id"]])}
    return run.cause(kind, title, answer, saving, where=where, evidence=evidence, worst=worst)


def _longest(run: Run, trajectory: int) -> list[int]:
    """Lengths of the longest others, longest first."""
    answer = run.ask(_SQL["lengths"], trajectory=trajectory, count=max(TAIL) + 1)
    return sorted((tokens for tokens in answer.row[0] or [] if tokens is not None), reverse=True)


def _expected(longest: Sequence[int], tokens: int) -> float:
    """Trajectories at least as long that the tail of the others leads to expect."""
    expected = [0.0]
    for count in TAIL:
        if len(longest) <= count or longest[count] < 1:
            return math.inf
        start = longest[count]
        sum_of_logs = math.fsum(math.log(length / start) for length in longest[:count])
        if not sum_of_logs:
            return math.inf
        expected.append(count * (start / tokens) ** (count / sum_of_logs))
    return max(expected)


def aggressive_filter(run: Run) -> list[Cause]:
    """A filter that few groups pass, if it makes steps generate again."""
    kept, thrown_away = run.ask(_SQL["kept"]).row
    if not thrown_away or kept >= FEW_KEPT * (kept + thrown_away):
        return []
    answer = run.ask(_SQL["again"])
    rounds = sorted((-count, run.number(step)) for step, _, count in answer.rows)
    again = sum(count > 1 for _, _, count in answer.rows)
    title = (
        f"the filter passes {per_cent(kept / (kept + thrown_away))} of the groups, and {again} of"
        f" {len(answer.rows)} steps generated again"
    )
    worst = [f"step {number} generated {-count} times" for count, number in rounds[:3]]
    return run.cause("aggressive_filter", title, answer, worst=worst)
