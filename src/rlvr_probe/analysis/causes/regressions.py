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
from rlvr_probe.analysis.causes.cause import Cause, Saving
from rlvr_probe.analysis.causes.rewards import replay_functions
from rlvr_probe.analysis.causes.texts import seconds, times
from rlvr_probe.analysis.causes.thresholds import GROWN, GROWN_USUAL
from rlvr_probe.analysis.causes.tools import replay_tool
from rlvr_probe.analysis.causes.transfer import moved_by_step, replay_weights
from rlvr_probe.analysis.results import Answer
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
    found = list[Cause]()
    for (kind, place), points in series.items():
        one = _grown(kind, place, [(step, ns) for step, ns in points if ns])
        if one is not None:
            found += _cause(run, one)
    return found


def _grown(kind: str, place: str, points: Sequence[tuple[int, float]]) -> _Grown | None:
    if len(points) < _FEW:
        return None
    third = len(points) // 3
    before = median(ns for _, ns in points[:third])
    now = median(ns for _, ns in points[-third:])
    if now < GROWN * before:
        return None
    longer = [ns > GROWN_USUAL * before for _, ns in points]
    begins = (
        at
        for at in range(len(points))
        if longer[at] and sum(longer[at:]) >= _NEARLY * (len(points) - at)
    )
    first = next(begins, None)
    if first is None:
        return None
    return _Grown(kind, place, [step for step, _ in points[first:]], before, now)


def _cause(run: Run, one: _Grown) -> list[Cause]:
    answer = _replay(run, one)
    steps = set(one.steps)
    saving = Saving.of(row for row in answer.rows if row[0] in steps)
    if run.is_noise(saving):
        return []
    what, where = "moving weights", dict[str, str | int]()
    if one.kind == "slow_tool":
        what, where = f"a call of tool {one.place}", {"tool": one.place}
    elif one.kind == "slow_reward":
        what, where = f"a call of reward function {one.place}", {"function": one.place}
    since = run.numbers.get(one.steps[0], one.steps[0])
    title = (
        f"{what} takes {seconds(one.now_ns)} since step {since},"
        f" {times(one.now_ns / one.before_ns)} as long as before"
    )
    return [run.cause(one.kind, saving, title, answer, where=where)]


def _replay(run: Run, one: _Grown) -> Answer:
    left = one.before_ns / one.now_ns
    match one.kind:
        case "slow_tool":
            return replay_tool(run, one.place, left)
        case "slow_reward":
            return replay_functions(run, [one.place], left)
    return replay_weights(run, one.before_ns)
