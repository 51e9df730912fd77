"""``formal.log``: stage times to compare a replay with, in the timers of the replaying trainer.

Each of PolyTrace's frameworks has timers of its own around what it replays. A log with other
timers would show a difference where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from rlvr_probe.model.workload import Iteration
from rlvr_probe_polytrace.plan import Plan

__all__ = ["formal_lines", "timings"]

_STAGES = (
    ("rollout", "gen"),
    ("reward", "reward"),
    ("old_logprob", "old_log_prob"),
    ("ref_logprob", "ref"),
    ("advantage", "adv"),
    ("update_actor", "update_actor"),
    ("step", "step"),
)
"""Our stages and the timers that PolyTrace compares."""
_BEFORE_FILTER = ("gen", "reward")
"""Timers of what is done with all that was generated."""
_INSIDE_ADV = ("old_logprob", "ref_logprob", "advantage")
"""Stages that rllm does inside its timer ``adv``."""


def formal_lines(iterations: Iterable[Iteration], plan: Plan, repo: str) -> Iterator[str]:
    """The real stage times as verl prints them: one line per benchmark group, in order.

    Plain decimals: PolyTrace pairs lines by position, so a line that fails to parse shifts all
    later ones.
    """
    for iteration in iterations:
        seconds = timings(plan, iteration, repo)
        # Where the time of the step is unknown PolyTrace would take ``step`` for it.
        key = "step" if "step" in seconds else "training/global_step"
        parts = [f"{key}:{iteration.steps[-1] if iteration.steps else 0}"]
        parts += [f"timing_s/{timer}:{value:.9f}" for timer, value in seconds.items()]
        tokens = sum(
            int(sum(shard.prompt_tokens)) + int(sum(shard.response_tokens))
            for index in iteration.batches
            for shard in plan.batches[index].batch.batch.shards
        )
        parts.append(f"perf/total_num_tokens:{tokens}")
        yield " - ".join(parts)


def timings(plan: Plan, iteration: Iteration, repo: str) -> dict[str, float]:
    """Seconds by PolyTrace's timer; unknown, non-finite and too short ones are absent.

    So are stages whose replay differs: those behind a filter that it does not know, where it does
    more, and all of a batch that is not written whole, where it does less.
    """
    if not plan.cut.isdisjoint(iteration.batches):
        return {}
    seconds = {
        timer: value
        for stage, timer in _STAGES
        if (value := iteration.stage_s.get(stage)) is not None
    }
    if repo == "rllm":
        _as_rllm(seconds, plan, iteration)
    elif repo == "search_r1":
        seconds.pop("reward", None)  # its replay gives none
    if any(plan.batches[index].batch.batch.unselected for index in iteration.batches):
        seconds = {timer: seconds[timer] for timer in _BEFORE_FILTER if timer in seconds}
    return {
        timer: seconds[timer]
        for _, timer in _STAGES
        if timer in seconds and math.isfinite(seconds[timer]) and seconds[timer] >= 5e-10
    }


def _as_rllm(seconds: dict[str, float], plan: Plan, iteration: Iteration) -> None:
    """What rllm's timers would show: rewards inside ``gen``, log-probabilities inside ``adv``."""
    seconds.pop("reward", None)
    lags = [plan.lag_s[index] for index in iteration.batches]
    rollout = seconds.pop("gen", None)
    if rollout is not None and None not in lags:
        seconds["gen"] = rollout + sum(lag for lag in lags if lag is not None)
    seen = {stage for other in plan.iterations for stage in other.stage_s}
    advantage = _sum(iteration.stage_s, [stage for stage in _INSIDE_ADV if stage in seen])
    seconds.pop("adv", None)
    if advantage is not None and "advantage" in seen:
        seconds["adv"] = advantage


def _sum(stage_s: Mapping[str, float], stages: Iterable[str]) -> float | None:
    """Sum of some stages, s; None if one is unknown."""
    values = [stage_s.get(stage, math.nan) for stage in stages]
    total = math.fsum(values)
    return None if math.isnan(total) else total
