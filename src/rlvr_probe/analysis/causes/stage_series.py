"""What each stage of a run took, step by step, and what of it is longer than its baseline.

The baseline of a rollout whose turns have times of their own is the time of a token: how long the
rollout takes is up to its longest trajectory. What takes place in some steps alone has to be far
from its usual time, however few these are.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from rlvr_probe.analysis.causes.baselines import (
    ENOUGH,
    Excess,
    excess,
    excess_of_few,
    expected,
    line,
    noise_of,
    window,
)
from rlvr_probe.analysis.causes.thresholds import LONGER, SLIGHTLY
from rlvr_probe.analysis.stages import STAGES, Stage, Taken

__all__ = ["Series", "series_of", "slower_rollout"]

_RARE: Final = ("checkpoint", "evaluation")
"""Stages that take place in some steps alone."""

_MOST: Final = 0.5
"""Share of what a rollout took longer that the time of its tokens explains, from which on it is
that: where some engines are slow, a step waits for these."""

_LONGEST: Final = 2
"""Which of the kinds of tokens is that of the longest trajectory."""

_FIRST: Final = 2
"""Steps from the start of a run to the first that is not left to its warm-up."""


@dataclass(frozen=True, slots=True)
class Series:
    """What one stage took, without the first step of each session.

    Attributes:
        stage: Which.
        ns: By ``step_id``, ns; steps in which it did not take place are absent.
        usual: What it should have taken there for as many tokens, by all steps.
        longer: What these took longer than its baseline, if they did.
        slightly: The same of steps one after another that did so little that it shows in others.
        noise: Standard deviation of the logarithm of a time by its baseline.
        whole: As ``ns``, with those first steps.
        first: What these should take, ns, by ``step_id``.
        by_token: Whether each token took longer: it is not for single trajectories that it did.
    """

    stage: Stage
    ns: Mapping[int, float]
    usual: Mapping[int, float]
    longer: Excess | None
    slightly: Excess | None
    noise: float
    whole: Mapping[int, float]
    first: Mapping[int, float]
    by_token: bool

    @property
    def steady(self) -> Mapping[int, float]:
        """What it takes whenever it takes place: more of a first step is its warm-up."""
        most = max(self.ns.values(), default=math.inf)
        return {step: min(ns, most) for step, ns in self.whole.items()}

    def longer_but(self, apart: Container[int]) -> Excess | None:
        """What it took longer in steps that are not in ``apart``."""
        longer = self.longer
        if longer is None or longer.form == "growing":
            return longer
        ns = [0.0 if step in apart else ns for step, ns in zip(self.ns, longer.ns, strict=True)]
        return replace(longer, ns=ns) if any(ns) else None


def series_of(taken: Taken, paces: Mapping[int, tuple[float, float]]) -> list[Series]:
    """Of every stage, what each step took.

    A rollout lasts as long as its longest trajectory: the time of a token shows less.

    Args:
        taken: By all stages.
        paces: As :func:`~rlvr_probe.analysis.causes.weights_and_queues.own_pace_by_step`.
    """
    series = list[Series]()
    enough = max(map(len, taken.ns.values()), default=0) > ENOUGH
    for stage in STAGES:
        whole = taken.ns.get(stage.name, {})
        ns = {step: value for step, value in whole.items() if step not in taken.starts and value}
        if not whole:
            continue
        times = list(ns.values())
        tokens = taken.tokens_of(stage.tokens, list(ns))
        usual = expected(times, tokens) if ns else []
        longer, slower = excess(times, usual, _FIRST), None
        if stage.name == "rollout" and ns and ns.keys() <= paces.keys():
            pace, share = zip(*(paces[step] for step in ns), strict=True)
            turns = [time * part for time, part in zip(times, share, strict=True)]
            slower = slower_rollout(turns, pace, tokens)
        elif enough and stage.name in _RARE:
            longer = _larger(longer, _far_longer(times, tokens))
        by_token = slower is not None and (
            longer is None or _total(slower) >= _MOST * _total(longer)
        )
        longer = slower if by_token else longer
        slightly = window(times, usual, SLIGHTLY) if longer is None else longer
        noise = noise_of(times, usual) if ns else math.inf
        first = _expected_first(whole, ns, taken.tokens_of(stage.tokens, list(whole)))
        by_step = dict(zip(ns, usual, strict=True))
        series.append(Series(stage, ns, by_step, longer, slightly, noise, whole, first, by_token))
    return series


def _larger(first: Excess | None, second: Excess | None) -> Excess | None:
    """The one that is more."""
    return max(first, second, key=_total)


def _total(longer: Excess | None) -> float:
    return 0.0 if longer is None else math.fsum(longer.ns)


def _expected_first(
    whole: Mapping[int, float], later: Mapping[int, float], tokens: Sequence[Sequence[float]]
) -> dict[int, float]:
    """What the first step of each session should take, by all others."""
    if not later:
        return {}
    if len(later) < ENOUGH or not all(whole.values()):
        return dict.fromkeys(whole.keys() - later.keys(), max(later.values()))
    usual = zip(whole, expected(list(whole.values()), tokens), strict=True)
    return {step: ns for step, ns in usual if step not in later}


def _explains(context: Sequence[float], pace: Sequence[float]) -> bool:
    """Whether the pace has not grown for as many tokens."""
    usual = line(context, pace)
    return min(usual) <= 0 or excess(pace, usual, _FIRST) is None


def slower_rollout(
    ns: Sequence[float], pace: Sequence[float], tokens: Sequence[Sequence[float]]
) -> Excess | None:
    """What the turns of a rollout took longer because each of their tokens did.

    A token takes longer behind a longer context: that is not slower.
    """
    longer = excess(pace, expected(pace, tokens), _FIRST)
    if longer is None or any(_explains(context, pace) for context in tokens[:1]):
        return None
    parts = zip(ns, longer.ns, pace, strict=True)
    return replace(longer, ns=[time * more / each for time, more, each in parts])


def _far_longer(ns: Sequence[float], tokens: Sequence[Sequence[float]]) -> Excess | None:
    """What few occasions took longer for as many tokens of their longest trajectory, and at all."""
    counts = tokens[_LONGEST] if tokens else [1.0] * len(ns)
    if not all(counts):
        return None
    paces = [time / count for time, count in zip(ns, counts, strict=True)]
    longer = excess_of_few(paces)
    if longer is None:
        return None
    parts = list(zip(ns, longer.ns, paces, strict=True))
    usual, slow = list(ns[:1]), list(ns[-1:])
    if longer.form != "growing":
        usual = [time for time, more, _ in parts if not more]
        slow = [time for time, more, _ in parts if more]
    over = [time * more / pace for time, more, pace in parts]
    return replace(longer, ns=over) if median(slow) >= LONGER * median(usual) else None
