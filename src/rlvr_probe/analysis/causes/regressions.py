"""What takes longer than it did in the same run: tools, weights, reward functions, rollout beside.

Its own past is the best that a duration can be compared with
(:mod:`~rlvr_probe.analysis.causes.baselines`). The replay gives it what it took before: from the
step on since which it takes longer, or in each step of what grows from step to step. Of rollout
beside the training that is the time of a token, which steps in between may exceed as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from rlvr_probe.analysis.causes.baselines import Excess, excess
from rlvr_probe.analysis.causes.builder import Run
from rlvr_probe.analysis.causes.cause import Cause, Saving, seconds, times
from rlvr_probe.analysis.causes.slow_calls import replay_functions, replay_tool
from rlvr_probe.analysis.causes.thresholds import GROWN
from rlvr_probe.analysis.causes.weights_and_queues import (
    fetched_by_step,
    is_asynchronous,
    moved_by_step,
    pace_by_step,
    replay_weights,
)
from rlvr_probe.analysis.results import query_by_step
from rlvr_probe.analysis.statements import statements

__all__ = ["grown"]

_SQL: Final = statements(__name__)

_FEW: Final = 9
"""Steps from which on thirds of them mean something."""


def grown(run: Run) -> list[Cause]:
    """What takes longer than it did."""
    series = defaultdict[tuple[str, str], list[tuple[int, float]]](list)
    for kind, place, step, ns in query_by_step(run.tables, _SQL["series"]).rows:
        series[kind, place].append((step, ns))
    series["slow_weight_sync", ""] = moved_by_step(run, "weight_sync")
    # The first one is left to its warm-up.
    series["slow_rollout", ""] = pace_by_step(run.tables)[1:]
    causes = list[Cause]()
    for (kind, place), points in series.items():
        points = [(step, ns) for step, ns in points if ns]
        longer = excess([ns for _, ns in points], [1.0] * len(points))
        if len(points) < _FEW or longer is None:
            continue
        if kind == "slow_rollout":
            causes += _rollout(run, points, longer)
        elif longer.form != "some" and longer.times >= GROWN:
            causes += _cause(run, kind, place, points, longer)
    return causes


def _rollout(run: Run, points: Sequence[tuple[int, float]], longer: Excess) -> list[Cause]:
    """Rollout beside the training: with its usual pace the trainer would have waited less."""
    over = {step: more / ns for (step, ns), more in zip(points, longer.ns, strict=True) if more > 0}
    answer, saved = fetched_by_step(run), dict[int, float]()
    waits = answer.dicts
    # Of the last step only the wait is known to lie between two batches.
    ends = [*(row["start_ns"] for row in waits[1:]), *(row["end_ns"] for row in waits[-1:])]
    for row, end_ns in zip(waits, ends, strict=True):
        share = over.get(row["step_id"], 0.0)
        saved[row["step_id"]] = min(row["ns"], share * (end_ns - row["start_ns"]))
    first, last = run.number(min(over)), run.number(max(over))
    how = f"in steps {first} to {last}" if longer.form == "some" else f"since step {first}"
    title = f"rollout takes {times(longer.times)} as long for a token {how}"
    if longer.form == "growing":
        title = "rollout takes ever longer for a token"
    where = {"stage": "rollout"}
    return run.cause("slow_rollout", title, answer, Saving(saved), where=where)


def _cause(
    run: Run, kind: str, place: str, points: Sequence[tuple[int, float]], longer: Excess
) -> list[Cause]:
    growing = longer.form == "growing"
    # Of what grows, each step has a factor of its own: of all that its calls take.
    left = 0.0 if growing else longer.before / longer.now
    what, where = "moving weights", dict[str, str | int]()
    if is_asynchronous(run) and kind != "slow_weight_sync":
        # Beside the training it costs what the training waits for.
        what, where = _call(kind, place)
        answer, growing = fetched_by_step(run), True
    elif kind == "slow_tool":
        what, where = _call(kind, place)
        answer = replay_tool(run, place, left)
    elif kind == "slow_reward":
        what, where = _call(kind, place)
        answer = replay_functions(run, [place], left)
    else:
        answer, growing = replay_weights(run, longer.before), False
    kept = dict(points[max(1, longer.first) :])
    shares = {step: 1 - longer.before / ns if growing else 1.0 for step, ns in kept.items()}
    rows = [(step, ns * shares[step]) for step, ns, *_ in answer.rows if step in shares and ns]
    how = f"{times(longer.times)} as long as before"
    title = (
        f"{what} takes ever longer, in the end {seconds(longer.now)}, {how}"
        if longer.form == "growing"
        else f"{what} takes {seconds(longer.now)} since step"
        f" {run.number(points[longer.first][0])}, {how}"
    )
    return run.cause(kind, title, answer, Saving.of(rows), where=where)


def _call(kind: str, place: str) -> tuple[str, dict[str, str | int]]:
    """A call in words, and its place."""
    if kind == "slow_tool":
        return f"a call of tool {place}", {"tool": place}
    return f"a call of reward function {place}", {"function": place}
