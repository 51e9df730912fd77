"""Single trajectories that a whole step waited for, and filters that make it generate again.

What the longest trajectory costs a step is how much later it ends than all others of its batch, as
far as it generated for longer. Where a rank generates its rows in calls of their own, it is what
these would have been shorter by, at the pace that the longest trajectory of a call and its time
have in common in the run, as far as no other rank is as late.

Lengths have heavy tails by nature. A straggler is one of which the run's own tail leads to expect
less than one in a thousand: the tail is that of Hill's estimator over the longest of all others,
and the worst of three sizes of it counts. A trajectory that was cut at the cap is none.

Where several steps have one, or a few of them, they would be each other's tail. There the longest
of each step is compared with what most of that step generated, by its usual share of that.

A filter may throw away so many groups that a step has to generate again. What the step lasts longer
is the time from the end of its first generation to that of its last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from rlvr_probe.analysis.causes.baselines import outliers, slope
from rlvr_probe.analysis.causes.builder import Run
from rlvr_probe.analysis.causes.cause import Cause, Saving, per_cent, seconds, times
from rlvr_probe.analysis.causes.thresholds import FEW_KEPT, LONG_TAIL_SHARE, LONGER, RARE, TAIL
from rlvr_probe.analysis.results import Answer, Evidence
from rlvr_probe.analysis.statements import statements

__all__ = ["aggressive_filter", "stragglers"]

_SQL: Final = statements(__name__)

_SLOWER: Final = 3.0
"""How many times the pace of the run a trajectory may take that generates alone, at most."""

_SEVERAL: Final = 2
"""Steps with stragglers, from which on their steps show it better than the tail of all lengths."""


def stragglers(run: Run) -> list[Cause]:
    """Those of several steps, or the worst, if it is beyond the run's tail or costs much alone."""
    if several := _recurring(run):
        return several
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
    longest = _longest(run, [worst["trajectory_id"]])
    saving = Saving({worst["step_id"]: ns})
    if not rows[0]["truncated"] and _expected(longest, rows[0]["response_tokens"]) < RARE:
        return _named(run, "straggler", saving, rows[0], longest, answer)
    if ns >= LONG_TAIL_SHARE * run.extent.wall_ns:
        return _named(run, "long_tail", saving, rows[0], longest, answer)
    return []


def _recurring(run: Run) -> list[Cause]:
    """Steps whose longest trajectories are far longer, beside its others, than those of others."""
    answer = run.ask(_SQL["tails"])
    if not answer.rows:
        return []
    steps, longest, usual, ns = zip(*answer.rows, strict=True)
    share = median(most / long for most, long in zip(longest, usual, strict=True))
    beside = [share * long for long in usual]
    longer = outliers(longest, beside)
    if longer is None:
        return []
    pace = slope(longest, ns)
    usual_ns = median(time for time, tokens in zip(ns, longer.ns, strict=True) if not tokens)
    over = {
        step: min(_SLOWER * tokens * pace, max(0.0, time - usual_ns))
        for step, tokens, time in zip(steps, longer.ns, ns, strict=True)
        if tokens
    }
    if len(over) < _SEVERAL:
        return []
    # Halfway from what is usual to the longest: for what is shorter no step waited.
    least = [
        math.ceil(max(LONGER * tokens, math.sqrt(tokens * long)))
        for tokens, long in zip(beside, longest, strict=True)
    ]
    rows = run.ask(_SQL["beyond"], steps=steps, least=least, over=list(over)).rows
    # What the tail of all others leads to expect, in number, is part of the workload.
    others = _longest(run, [row[0] for row in rows])
    natural = _chance(len(rows), _expected(others, rows[-1][1])) > RARE**2
    worst = max(over, key=lambda step: over[step])
    title = (
        f"{len(over)} steps waited for {len(rows)} trajectories of up to {rows[0][1]:,} tokens,"
        f" {times(longer.times)} as long as the longest of usual steps"
    )
    evidence = {"trajectory": Evidence.of([row[0] for row in rows])}
    where = {"step": run.number(worst)}
    kind = "long_tail" if natural else "straggler"
    return run.cause(kind, title, answer, Saving(over), where=where, evidence=evidence)


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


def _longest(run: Run, trajectories: Sequence[int]) -> list[int]:
    """Lengths of the longest others, longest first."""
    answer = run.ask(_SQL["lengths"], trajectories=list(trajectories), count=max(TAIL) + 1)
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
            # All are as long: there is no tail.
            continue
        expected.append(count * (start / tokens) ** (count / sum_of_logs))
    return max(expected)


def _chance(count: int, expected: float) -> float:
    """How likely so many are or more, where so many are expected: of Poisson."""
    if not math.isfinite(expected):
        return 1.0
    terms = (expected**number / math.factorial(number) for number in range(count))
    return 1 - math.exp(-expected) * math.fsum(terms)


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
