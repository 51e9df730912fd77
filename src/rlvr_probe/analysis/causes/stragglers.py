"""Single trajectories that a whole step waited for, much longer than the run leads to expect.

What the longest costs a step is how much later it ends than all others of its batch, as far as it
generated for longer; where a rank generates its rows in calls of their own, what its calls would
have been shorter by, at the pace that the longest trajectory of a call and its time have in common
in the run, as far as no other rank is as late.

Lengths have heavy tails by nature. A straggler is one of which the run's own tail leads to expect
less than one in a thousand: the tail is that of Hill's estimator over the longest of all others,
and the worst of three sizes of it counts. A trajectory that was cut at the cap is none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rlvr_probe.analysis.causes.cause import Cause, Saving
from rlvr_probe.analysis.causes.finding import Run
from rlvr_probe.analysis.causes.thresholds import LONG_TAIL_SHARE, RARE, TAIL
from rlvr_probe.analysis.causes.words import seconds
from rlvr_probe.analysis.figures import Answer, Evidence

__all__ = ["stragglers"]

_LAST: Final = """
WITH batches AS (
    SELECT step_id, batch_id, max_by(trajectory_id, end_ns) AS trajectory_id,
           max(end_ns, 2) AS ends, max_by(generated_ns, end_ns) - median(generated_ns) AS longer_ns
    FROM cause_path GROUP BY ALL
)
-- One that waited for its tools or its verification is late for another reason.
SELECT step_id, trajectory_id, least(ends[1] - ends[2], greatest(longer_ns, 0))::DOUBLE AS ns
FROM batches WHERE len(ends) = 2
"""
"""Of trajectories on their own: how much later than all others of its batch the last one ended, at
most by as much as it generated for longer than half of them did."""

_LONGEST: Final = """
WITH several AS (
    SELECT t.step_id, t.process, u.start_ns, u.trajectory_id,
           sum(u.response_tokens) AS tokens
    FROM kept_trajectory AS t JOIN turn AS u USING (trajectory_id)
    WHERE NOT t.own_times AND t.mode = 'train' GROUP BY ALL
), single AS (
    SELECT t.step_id, t.process, c.start_ns, t.trajectory_id, t.response_tokens AS tokens
    FROM kept_trajectory AS t JOIN cause_call AS c USING (step_id, process)
    WHERE t.mode = 'train' AND NOT EXISTS (FROM several)
), placed AS (
    SELECT *, row_number() OVER (
        PARTITION BY step_id, process, start_ns ORDER BY tokens DESC) AS place
    FROM (FROM several UNION ALL FROM single)
), calls AS (
    SELECT c.step_id, c.process, c.end_ns - c.start_ns AS ns, a.trajectory_id, a.tokens,
           coalesce(b.tokens, 0) AS next_tokens
    FROM cause_call AS c
    JOIN placed AS a USING (step_id, process, start_ns)
    LEFT JOIN placed AS b ON b.step_id = c.step_id AND b.process = c.process
                         AND b.start_ns = c.start_ns AND b.place = 2
    WHERE a.place = 1
), pace AS (
    -- The slope is NaN where all are as long, which is above every number.
    SELECT if(isfinite(slope), greatest(slope, 0), 0) AS ns_per_token
    FROM (SELECT regr_slope(ns, tokens) AS slope FROM calls)
), alone AS (
    SELECT step_id, process, trajectory_id,
           sum(least((tokens - next_tokens) * ns_per_token, ns)) AS ns
    FROM calls, pace GROUP BY ALL
), worst AS (
    SELECT *, row_number() OVER (PARTITION BY step_id, process ORDER BY ns DESC) AS place
    FROM alone
), decoded AS (
    SELECT step_id, process, sum(tokens) AS tokens FROM calls GROUP BY ALL
), ranks AS (
    SELECT l.step_id, l.own_ns + l.tool_ns AS lap_ns, w.trajectory_id, w.ns, d.tokens,
           row_number() OVER (PARTITION BY l.step_id ORDER BY l.own_ns + l.tool_ns DESC) AS place
    FROM cause_lap AS l JOIN worst AS w USING (step_id, process)
    JOIN decoded AS d USING (step_id, process)
    WHERE l.lap = 'rollout' AND w.place = 1
)
SELECT a.step_id, a.trajectory_id,
       -- A rank that is later than one with responses as long is late for another reason.
       least(a.ns, a.lap_ns - b.lap_ns, greatest(a.tokens - b.tokens, 0) * ns_per_token)::DOUBLE
       AS ns
FROM ranks AS a JOIN ranks AS b USING (step_id), pace WHERE a.place = 1 AND b.place = 2
"""
"""Of ranks that generate their own rows: what the last rank would have been shorter by."""

_LENGTHS: Final = """
SELECT list(response_tokens) AS tokens
FROM (SELECT response_tokens FROM kept_trajectory
      WHERE mode = 'train' AND trajectory_id <> $trajectory
      ORDER BY response_tokens DESC LIMIT $count)
"""

_ONE: Final = """
SELECT t.trajectory_id, t.step_id, t.grp, t.sample, t.response_tokens, t.truncated, b.ordinal,
       t.engine, p.rank
FROM trajectory AS t JOIN batch AS b USING (batch_id) LEFT JOIN process AS p USING (process)
WHERE t.trajectory_id IN $trajectories
"""


def stragglers(run: Run) -> list[Cause]:
    """The worst single trajectory, if it is worse than the run's tail, or costs much by itself."""
    answer = run.ask(_LAST)
    if not answer.rows:
        answer = run.ask(_LONGEST)
    cost = sorted((row for row in answer.dicts if row["ns"]), key=lambda row: -row["ns"])
    if not cost:
        return []
    facts = {
        row["trajectory_id"]: row
        for row in run.ask(_ONE, trajectories=[row["trajectory_id"] for row in cost[:3]]).dicts
    }
    worst = cost[0]
    one = facts.get(worst["trajectory_id"])
    if one is None or not one["response_tokens"]:
        return []
    longest = _longest(run, one["trajectory_id"])
    if not one["truncated"] and _expected(longest, one["response_tokens"]) < RARE:
        return _named(run, "straggler", cost[:1], facts, longest, answer)
    if worst["ns"] >= LONG_TAIL_SHARE * run.extent.wall_ns:
        return _named(run, "long_tail", cost[:1], facts, longest, answer)
    return []


def _named(
    run: Run,
    kind: str,
    cost: Sequence[Mapping[str, Any]],
    facts: Mapping[int, Mapping[str, Any]],
    longest: Sequence[int],
    answer: Answer,
) -> list[Cause]:
    saving = Saving({row["step_id"]: row["ns"] for row in cost})
    if run.is_noise(saving):
        return []
    [(one, ns)] = [(facts[row["trajectory_id"]], row["ns"]) for row in cost]
    number = run.numbers.get(one["step_id"], one["step_id"])
    where = {
        "step": number,
        "group": one["grp"],
        "sample": one["sample"],
        "batch": one["ordinal"],
    }
    tokens = one["response_tokens"]
    cut = ", cut at the cap," if one["truncated"] else ""
    other = f"; the longest other of the run has {longest[0]:,}" if longest else ""
    title = (
        f"step {number} waited {seconds(ns)} for one trajectory of {tokens:,} tokens{cut} (sample"
        f" {one['sample']} of group {one['grp']}{other})"
    )
    place = next(
        (f" on {name} {one[name]}" for name in ("engine", "rank") if one[name] is not None), ""
    )
    worst = [
        f"step {number}, batch {one['ordinal']}, group {one['grp']}, sample {one['sample']}:"
        f" {tokens:,} tokens{place}"
    ]
    evidence = {"trajectory": Evidence.of([one["trajectory_id"]])}
    return [run.cause(kind, saving, title, answer, where=where, evidence=evidence, worst=worst)]


def _longest(run: Run, trajectory: int) -> list[int]:
    """Lengths of the longest others, longest first."""
    answer = run.ask(_LENGTHS, trajectory=trajectory, count=max(TAIL) + 1)
    return sorted((one for one in answer.row[0] or [] if one is not None), reverse=True)


def _expected(longest: Sequence[int], tokens: int) -> float:
    """Trajectories at least as long that the tail of the others leads to expect."""
    found = [0.0]
    for count in TAIL:
        if len(longest) <= count or longest[count] < 1:
            return math.inf
        start = longest[count]
        sum_of_logs = math.fsum(math.log(one / start) for one in longest[:count])
        if not sum_of_logs:
            return math.inf
        found.append(count * (start / tokens) ** (count / sum_of_logs))
    return max(found)
