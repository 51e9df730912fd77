"""Tools, weights and reward functions that take longer than they did earlier in the same run.

Its own past is the best that a duration can be compared with. The first third of the steps is what
it was, the last third what it is; from the step on since which nearly all take longer, the replay
gives it what it took before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from rlvr_probe.analysis.causes.builder import Run
from rlvr_probe.analysis.causes.cause import Cause, Saving, seconds, times
from rlvr_probe.analysis.causes.slow_calls import replay_functions, replay_tool
from rlvr_probe.analysis.causes.thresholds import GROWN, GROWN_USUAL
from rlvr_probe.analysis.causes.weights_and_queues import moved_by_step, replay_weights
from rlvr_probe.analysis.statements import statements

__all__ = ["grown"]

_SQL: Final = statements(__name__)

_FEW: Final = 9
"""Steps from which on thirds of them mean something."""

_NEARLY: Final = 0.8
"""Share of steps that are nearly all."""


@dataclass(frozen=True, slots=True)
class _Grown:
    """What grew: from the first of ``steps`` on, from ``before_ns`` to ``now_ns``."""

    kind: str
    place: str
    steps: Sequence[int]
    before_ns: float
    now_ns: float


def grown(run: Run) -> list[Cause]:
    """What takes longer than it did."""
    series = defaultdict[tuple[str, str], list[tuple[int, float]]](list)
    for kind, place, step, ns in run.ask(_SQL["series"]).rows:
        series[kind, place].append((step, ns))
    series["slow_weight_sync", ""] = moved_by_step(run, "weight_sync")
    causes = list[Cause]()
    for (kind, place), points in series.items():
        growth = _grown(kind, place, [(step, ns) for step, ns in points if ns])
        if growth is not None:
            causes += _cause(run, growth)
    return causes


def _grown(kind: str, place: str, points: Sequence[tuple[int, float]]) -> _Grown | None:
    if len(points) < _FEW:
        return None
    third = len(points) // 3
    before = median(ns for _, ns in points[:third])
    now = median(ns for _, ns in points[-third:])
    if now < GROWN * before:
        return None
    longer = [ns > GROWN_USUAL * before for _, ns in points]
    for at in range(len(points)):
        if longer[at] and sum(longer[at:]) >= _NEARLY * (len(points) - at):
            return _Grown(kind, place, [step for step, _ in points[at:]], before, now)
    return None


def _cause(run: Run, growth: _Grown) -> list[Cause]:
    left, what, where = growth.before_ns / growth.now_ns, "moving weights", dict[str, str | int]()
    if growth.kind == "slow_tool":
        what, where = f"a call of tool {growth.place}", {"tool": growth.place}
        answer = replay_tool(run, growth.place, left)
    elif growth.kind == "slow_reward":
        what, where = f"a call of reward function {growth.place}", {"function": growth.place}
        answer = replay_functions(run, [growth.place], left)
    else:
        answer = replay_weights(run, growth.before_ns)
    steps = set(growth.steps)
    saving = Saving.of(row for row in answer.rows if row[0] in steps)
    title = (
        f"{what} takes {seconds(growth.now_ns)} since step {run.number(growth.steps[0])},"
        f" {times(growth.now_ns / growth.before_ns)} as long as before"
    )
    return run.cause(growth.kind, title, answer, saving, where=where)
