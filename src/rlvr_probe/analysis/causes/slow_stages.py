"""Stages that exceed their own baseline: in some steps, since a step, ever more, or as a share.

What :mod:`rlvr_probe.analysis.stages` has of every step is compared with what
:mod:`~rlvr_probe.analysis.causes.baselines` expects of it. A stage in which no
GPU does what trains is named as a share as well: it could happen beside their work, or less often.
What another cause explains of a step is taken off first. Where most stages of a step take longer at
once, it is the machine.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from rlvr_probe.analysis.causes.baselines import (
    ENOUGH,
    Excess,
)
from rlvr_probe.analysis.causes.builder import Run
from rlvr_probe.analysis.causes.cause import (
    Cause,
    Saving,
    is_early,
    per_cent,
    seconds,
    times,
)
from rlvr_probe.analysis.causes.host_cpu import MUCH, busy_cores, contended
from rlvr_probe.analysis.causes.stage_series import Series, series_of
from rlvr_probe.analysis.causes.thresholds import (
    EVALUATION_SHARE,
    IDLE_SHARE,
    NOISE,
    PROBE_SHARE,
    SLIGHTLY,
    WARM_UP_S,
)
from rlvr_probe.analysis.causes.weights_and_queues import (
    fetched_by_step,
    own_pace_by_step,
    pace_by_step,
)
from rlvr_probe.analysis.results import Answer
from rlvr_probe.analysis.stages import STAGES, Stage, stage_times
from rlvr_probe.analysis.statements import covered, fill, statements

__all__ = ["categories_of", "restarts", "slow_stages"]

_SQL: Final = statements(__name__)


_RANKS: Final = ("slow_rank", "thermal_throttling", "unfinished")

_EXPLAINED: Final = {
    "rollout": (
        "straggler", "long_tail", "slow_tool", "serial_reward", "slow_reward", "aggressive_filter",
        "waiting_rollout",
    ),
    "reward": ("serial_reward",),
}  # fmt: skip
"""By stage, kinds of causes that explain a part of it, beside those of ranks."""

_TAILS: Final = ("straggler", "long_tail")
"""Kinds of causes that are many tokens: a baseline by tokens has them."""

_MORE: Final = 2.0
"""By that factor the steps that have one exceed their baseline more than others do."""

_IDLE: Final = {
    "data": IDLE_SHARE,
    "checkpoint": IDLE_SHARE,
    "evaluation": EVALUATION_SHARE,
    "between_steps": IDLE_SHARE,
    "probe": PROBE_SHARE,
}
"""By stage, the share of the GPU time from which on it is named however steady it is."""

_INSIDE: Final = {
    "between_steps": (_SQL["marked"], "label", "the span"),
    "evaluation": (
        fill(_SQL["evaluated"], calls=covered(_SQL["evaluated_calls"], "function")),
        "function",
        "reward function",
    ),
}
"""By stage, the query of what is inside of it, the key of that as a place, and what it is."""

_LEAST: Final = 0.1
"""Share of a stage from which on what is inside of it is named."""

_SHOWS: Final = 3.0
"""So many standard deviations of its noise are below a factor that a stage shows."""

_ALIKE: Final = 2.0
"""Factors of a machine that is slow lie that close together: as logarithms, by that of the stage
that loses most."""

_MOST: Final = 0.6
"""Share that is most of them."""

_WORST: Final = 3
"""Worst steps that are shown."""

_NAMED: Final = 4
"""Steps that are named one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class _Slower:
    """A stage in some steps, beside all others.

    Attributes:
        part: Which.
        ns: What it took in these.
        logs: Logarithm of each of its times by what is expected.
        level: The median of the others.
        more: How far the median of these steps is above that.
        least: What that has to be, to be beyond noise.
    """

    part: Series
    ns: float
    logs: Mapping[int, float]
    level: float
    more: float
    least: float


def slow_stages(run: Run) -> list[Cause]:
    """Stages above their baseline, as far as no cause that was found before explains it."""
    taken = stage_times(run.tables)
    series, answer = series_of(taken, own_pace_by_step(run.tables)), taken.answer
    # What hangs takes long by itself.
    hung = any(cause.kind == "unfinished" for cause, _ in run.found)
    slow = {} if hung else _left(run, _RANKS, _slow_machine(series) | contended(run, series))
    causes, early = list[Cause](), list[tuple[Stage, Mapping[int, float]]]()
    if slow:
        title = f"everything took longer in {_steps(run, slow)}{busy_cores(run, slow)}"
        causes += run.cause("slow_host", title, answer, Saving(slow))
    for part in series:
        longer = part.longer_but(slow)
        over = dict(zip(part.ns, longer.ns, strict=True)) if longer else {}
        if longer is not None and longer.form == "some" and _warms_up(list(over.values())):
            early.append((part.stage, {step: ns for step, ns in over.items() if ns}))
            longer, over = None, {}
        steady = part.steady
        whole = sum(steady.values())
        known = not (hung or is_early(run.extent.steps))
        budget = _IDLE.get(part.stage.name, math.inf)
        idle = known and whole >= budget * run.extent.wall_ns
        if idle and sum(over.values()) < whole / 2:
            steady_ns = whole - sum(over.values())
            run.allowed[_kind(part.stage)] = min(budget, steady_ns / run.extent.wall_ns)
            causes += _cause(run, part, _shared(run, part.stage, steady), answer, steady)
        elif longer is not None:
            causes += _cause(run, part, _title(run, part, longer), answer, over)
    return causes + _warm_up(run, series, early, answer)


def categories_of(cause: Cause) -> tuple[str, ...]:
    """Categories of the ledger that a cause is about."""
    place = cause.where.get("stage") if cause.kind == "warm_up" else None
    return next(
        (stage.categories for stage in STAGES if cause.kind == _kind(stage) or place == stage.name),
        (),
    )


def restarts(run: Run) -> list[Cause]:
    """What lies between two sessions of a run."""
    answer = run.ask(_SQL["restarts"])
    numbers = ", ".join(str(row["number"]) for row in answer.dicts)
    title = f"the run was started again before step {numbers}"
    return run.cause("restart", title, answer) if numbers else []


def _kind(stage: Stage) -> str:
    """The kind of cause that says of a stage that it is slow."""
    return f"slow_{stage.name}"


def _slow_machine(series: Sequence[Series]) -> dict[int, float]:
    """What steps took longer in which half of the stages that show it did; ``step_id``, ns."""
    logs = [
        (part, {step: math.log(ns / part.usual[step]) for step, ns in part.ns.items()})
        for part in series
        if part.stage.name != "probe"  # it follows the stages that it is in
    ]
    together = {
        frozenset(step for step, over in zip(part.ns, part.slightly.ns, strict=True) if over > 0)
        for part, _ in logs
        if part.slightly and part.slightly.form != "growing"
    }
    found = (_slow_in(logs, steps) for steps in sorted(together, key=sorted))
    return max(found, key=lambda over: sum(over.values()), default={})


def _slow_in(
    parts: Sequence[tuple[Series, Mapping[int, float]]], steps: frozenset[int]
) -> dict[int, float]:
    """The same of those of these steps in which several stages took longer by about as much."""
    here = list[_Slower]()
    for part, logs in parts:
        others = [log for step, log in logs.items() if step not in steps]
        inside = part.ns.keys() & steps
        if inside and others:
            level = median(others)
            more = median(logs[step] for step in inside) - level
            error = part.noise * math.sqrt(1 / len(inside) + 1 / len(others))
            ns = sum(part.ns[step] for step in inside)
            here.append(_Slower(part, ns, logs, level, more, _SHOWS * error))
    longer = [stage for stage in here if stage.more >= max(math.log(SLIGHTLY), stage.least)]
    if not longer:
        return {}
    # Waits for what loses most are longer as well, and by less.
    most = max(longer, key=lambda stage: stage.more * stage.ns)
    alike = [stage for stage in longer if stage.more >= most.more / _ALIKE]
    share = median(stage.more for stage in alike)
    vague = [stage for stage in here if stage.least >= share]
    least = max(2, (len(here) - len(vague)) / 2)
    others_ns = sum(stage.ns for stage in here if stage not in (*vague, most))
    if len(alike) < least or sum(stage.ns for stage in alike) - most.ns < MUCH * others_ns:
        return {}
    found = defaultdict[int, float](float)
    for step in steps:
        over = {stage: stage.logs[step] - stage.level for stage in here if step in stage.logs}
        shown = [over[stage] >= share / _ALIKE for stage in alike if stage in over]
        if sum(shown) < len(shown) / 2:
            continue
        for stage, more in over.items():
            part = stage.part
            if stage in longer:
                found[step] -= part.ns[step] * math.expm1(-more)
            # Stages of large noise were on that machine as well.
            elif stage in vague and not part.longer and len(part.ns) >= ENOUGH:
                found[step] -= part.ns[step] * math.expm1(-share)
    return {step: ns for step, ns in sorted(found.items()) if ns > 0}


def _cause(
    run: Run, part: Series, title: str, answer: Answer, over: Mapping[int, float]
) -> list[Cause]:
    """The cause, without what others explain of it; none where these explain most.

    Nor where one of its kind was found by what it is compared with: the more specific counts.
    """
    stage = part.stage
    kind = _kind(stage)
    if any(cause.kind == kind for cause, _ in run.found):
        return []
    others = () if part.by_token else _EXPLAINED.get(stage.name, ())
    if not _tail_exceeds(run, part, over):
        others = tuple(other for other in others if other not in _TAILS)
    left = _left(run, (*_RANKS, *others), over)
    if not left:
        return []
    where: dict[str, str | int] = {"stage": stage.name}
    if stage.name in _INSIDE:
        sql, key, what = _INSIDE[stage.name]
        for name, share in run.ask(sql).rows:
            if share >= _LEAST:
                where[key] = name
                title += f", {per_cent(share)} of it in {what} {name}"
    # Tokens explain the time of a step, but for its noise.
    vague = (
        part.noise * sum(part.ns.values()) / run.extent.wall_ns
        if stage.tokens and not part.by_token
        else 0.0
    )
    noise, saving = NOISE + min(NOISE, vague), Saving(left)
    worst = [
        f"step {run.number(step)}: {seconds(left[step])}" for step in saving.worst_steps[:_WORST]
    ]
    return run.cause(kind, title, answer, saving, where=where, noise=noise, worst=worst)


def _tail_exceeds(run: Run, part: Series, over: Mapping[int, float]) -> bool:
    """Whether steps with a tail exceed their baseline more: tokens do not explain it."""
    apart = {step for cause, by in run.found if cause.kind in _TAILS for step in by.by_step}
    shares = {step: over.get(step, 0.0) / ns for step, ns in part.ns.items()}
    tail = [share for step, share in shares.items() if step in apart]
    others = [share for step, share in shares.items() if step not in apart]
    return bool(tail) and median(tail) > _MORE * median(others or [0.0])


def _left(run: Run, kinds: Sequence[str], over: Mapping[int, float]) -> dict[int, float]:
    """What causes of these kinds do not explain of it; nothing where they explain most."""
    explained, whole = dict[int, float](), 0.0
    for cause, saving in run.found:
        if cause.kind in kinds:
            whole += saving.whole_ns or 0.0
            for step, ns in saving.by_step.items():
                explained[step] = explained.get(step, 0.0) + ns
    left = {step: max(0.0, ns - explained.get(step, 0.0)) for step, ns in over.items() if ns > 0}
    return left if sum(left.values()) - whole >= sum(over.values()) / 2 else {}


def _shared(run: Run, stage: Stage, steady: Mapping[int, float]) -> str:
    """A stage that takes long whenever it takes place."""
    taken = [ns for ns in steady.values() if ns > 0]
    each = "a step" if len(taken) >= _MOST * run.extent.steps else "each"
    most = f", up to {seconds(max(taken))}" if max(taken) > 2 * median(taken) else ""
    return f"{stage.title} takes {seconds(median(taken))} {each}{most}"


def _title(run: Run, part: Series, longer: Excess) -> str:
    steps = list(part.ns)
    how = f"{times(longer.times)} as long"
    for_tokens = " for as many tokens" if part.stage.tokens else ""
    if longer.form == "growing":
        last = seconds(median(list(part.ns.values())[-ENOUGH // 2 :]))
        return f"{part.stage.title} takes ever longer{for_tokens}, in the end {last} a step"
    if longer.form == "since":
        since = run.number(steps[longer.first])
        return f"{part.stage.title} takes {how} since step {since}{for_tokens}"
    slow = {step: ns for step, ns in zip(steps, longer.ns, strict=True) if ns}
    cores = busy_cores(run, slow)
    return f"{part.stage.title} took {how} as usual{for_tokens} in {_steps(run, slow)}{cores}"


def _steps(run: Run, over: Mapping[int, float]) -> str:
    """Steps in words."""
    numbers = sorted(run.number(step) for step in over)
    if len(numbers) == 1:
        return f"step {numbers[0]}"
    if numbers[-1] - numbers[0] + 1 == len(numbers):
        return f"steps {numbers[0]} to {numbers[-1]}"
    more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    return f"steps {', '.join(map(str, numbers[:_NAMED]))}{more}"


def _warms_up(over: Sequence[float]) -> bool:
    """Whether of the steps behind the first the next ones alone took longer, and by little, ns."""
    longer = [ns > 0 for ns in over]
    return all(longer[: sum(longer)]) and sum(over) <= WARM_UP_S * 1e9


def _warm_up(
    run: Run,
    series: Sequence[Series],
    early: Sequence[tuple[Stage, Mapping[int, float]]],
    answer: Answer,
) -> list[Cause]:
    """What the first step of each session took longer than the usual one, and those behind it."""
    over, of = dict[int, float](), dict[Stage, float]()
    for stage, longer_by in early:
        of[stage] = sum(longer_by.values())
        for step, longer in longer_by.items():
            over[step] = over.get(step, 0.0) + longer
    for part in series:
        for step, usual in part.first.items():
            longer = max(0.0, part.whole[step] - usual)
            over[step] = over.get(step, 0.0) + longer
            of[part.stage] = of.get(part.stage, 0.0) + longer
    paces = pace_by_step(run.tables)
    if len(paces) > ENOUGH:
        [step, ns], *later = paces
        waits = {row["step_id"]: row["ns"] for row in fetched_by_step(run).dicts}
        slower = max(0.0, 1 - median(pace for _, pace in later) / ns)
        longer = slower * waits.get(step, 0.0)  # a trainer may wait without fetching
        [rollout] = [stage for stage in STAGES if stage.name == "rollout"]
        over[step] = over.get(step, 0.0) + longer
        of[rollout] = of.get(rollout, 0.0) + longer
    over = {step: ns for step, ns in over.items() if ns > 0}
    if not over:
        return []
    if max(over.values()) <= WARM_UP_S * 1e9:
        run.usual["warm_up"] = 1.0
    first = "first steps" if early else "first step"
    title, where = f"the {first} after a start took longer, {_steps(run, over)}", {}
    most = max(of, key=lambda stage: of[stage])
    if of[most] >= _MOST * sum(over.values()):
        title, where = f"{title}, most of it in {most.title}", {"stage": most.name}
    return run.cause("warm_up", title, answer, Saving(over), where=where)
