"""Two runs, or two ranges of steps: what differs for as many tokens, and what they were made with.

Every stage is compared by :mod:`~rlvr_probe.analysis.comparison.shift`, with what its tokens
explain taken out, against what steps of the same run differ by. It has *changed* where it differs
beyond that, in 19 of 20 comparisons of equal runs in none of the stages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean
from typing import Final

from rlvr_probe.analysis.causes import Cause
from rlvr_probe.analysis.causes.baselines import ENOUGH, change_of
from rlvr_probe.analysis.comparison.shift import Shift, shift_of
from rlvr_probe.analysis.comparison.side import TOKEN, Side, Steps, read_side
from rlvr_probe.analysis.stages import ALL, STAGES, Stage

__all__ = ["Change", "Comparison", "Side", "Steps", "compare", "read_side"]

_CHANCE: Final = 0.05
"""How often equal runs may be said to differ."""

_LEAST: Final = 0.02
"""Share by which a stage differs, below which it is not said to: as much as machines do."""

_COUNTS: Final = 0.01
"""Share of a step that a change costs or saves, below which a run does not fail for it."""

_CHOSEN: Final = 1.4
"""By how much wider an interval is of what differs since a step that was chosen for it."""

_IDS: Final = ("step", "batch", "group", "sample")
"""Places of causes that are of one run alone."""

_KINDS: Final = ("tokens", "response tokens", "longest response")
"""Kinds of tokens of a step."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a stage, or the tokens of a step, are after, by what they were before.

    Attributes:
        name: Of the stage, ``step`` for all of them; or a kind of tokens.
        title: What it is, in words.
        before, after: Mean of a step, s or tokens; None where it never took place.
        times: How much longer it takes for as many tokens; None where steps are too few to know.
        low, high: What that lies between, with all other stages in 19 of 20 comparisons.
        lengths: How much longer it takes because its tokens differ.
        changed: Whether that is more than chance.
        since: Number of the first step after, where it changed within that run.
        share: Of the steps after, those from that one on.
    """

    name: str
    title: str
    before: float | None
    after: float | None
    times: float | None = None
    low: float | None = None
    high: float | None = None
    lengths: float | None = None
    changed: bool = False
    since: int | None = None
    share: float = 1.0

    @property
    def level(self) -> float | None:
        """As :attr:`times`, of all steps together; None if that is unknown."""
        return None if self.times is None else 1 + (self.times - 1) * self.share

    @property
    def in_single_steps(self) -> float | None:
        """How much longer the mean is by steps that are far from the others; None if unknown."""
        if not (self.before and self.after and self.level and self.lengths):
            return None
        return self.after / (self.before * self.lengths * self.level)

    @property
    def costs(self) -> float:
        """What it takes longer than before for as many tokens, in the mean of a step; a token 0."""
        if not self.changed or not self.level or self.name == TOKEN.name:
            return 0.0
        return (self.after or 0.0) * (1 - 1 / self.level)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two sides.

    Attributes:
        before, after: The sides.
        settings: By name, what they were made with, where that differs; None where it is unknown.
        step: All stages together.
        stages: Those that took place, in the order of a step, and ``token``.
        tokens: Kinds of tokens.
        causes: Of both, by kind and place: the share of the run that it costs, None where it is not
            named.
    """

    before: Side
    after: Side
    settings: Mapping[str, tuple[str | None, str | None]]
    step: Change
    stages: Sequence[Change]
    tokens: Sequence[Change]
    causes: Sequence[tuple[Cause, float | None, float | None]]

    @property
    def changed(self) -> list[Change]:
        """Stages that differ for as many tokens, those that cost or save most first."""
        return sorted(
            (stage for stage in self.stages if stage.changed), key=lambda stage: -abs(stage.costs)
        )

    @property
    def differs(self) -> bool:
        """Whether anything does that tokens do not explain."""
        return bool(self.changed or self.step.changed or self.worse(_COUNTS))

    @property
    def lengths_only(self) -> bool:
        """Whether tokens differ, and nothing else does."""
        return any(kind.changed for kind in self.tokens) and not self.differs

    def worse(self, limit: float) -> list[Cause]:
        """Causes that cost the run after more, by more than this share of its GPU time."""
        return [
            cause
            for cause, before, after in self.causes
            if not cause.natural
            and cause.kind != "warm_up"
            and (after or 0.0) - (before or 0.0) > limit
        ]

    def fails(self, limit: float) -> list[str]:
        """What takes longer by more than this share, in words."""
        least = _COUNTS * (self.step.after or 0.0)
        longer = [
            change.title
            for change in (self.step, *self.changed)
            if change.costs >= least and (change.times or 0.0) > 1 + limit
        ]
        return longer + [cause.title for cause in self.worse(limit)]


def compare(before: Side, after: Side) -> Comparison:
    """What differs between two sides."""
    stages = [stage for stage in (*STAGES, TOKEN) if before.times(stage) or after.times(stage)]
    shifts = {stage.name: _shifted(before, after, stage) for stage in stages}
    sigmas = _sigmas(1 + sum(shift is not None for shift in shifts.values()))
    changes = [_change(before, after, stage, shifts[stage.name], sigmas) for stage in stages]
    return Comparison(
        before=before,
        after=after,
        settings={
            name: (before.settings.get(name), after.settings.get(name))
            for name in sorted({*before.settings, *after.settings})
            if before.settings.get(name) != after.settings.get(name)
        },
        step=_step(before, after, changes, shifts, sigmas),
        stages=changes,
        tokens=_tokens(before, after),
        causes=_causes(before.causes, after.causes),
    )


def _sigmas(count: int) -> float:
    """Standard errors within which all of so many stay, in 19 of 20 comparisons of equal runs."""
    return NormalDist().inv_cdf(1 - _CHANCE / 2 / count)


@dataclass(frozen=True, slots=True)
class _Shifted:
    """What differs in a stage.

    Attributes:
        shift: Between all steps of both; or from ``since`` on.
        since: Place of the first step after in which it differs; None if it does in all.
        share: Of the steps after, those in which it does.
    """

    shift: Shift
    since: int | None = None
    share: float = 1.0


def _shifted(before: Side, after: Side, stage: Stage) -> _Shifted | None:
    """What differs in a stage; None where it is too small to matter, or too rare to know."""
    counts = ((side.mean_s(stage) or 0.0) >= _COUNTS * side.whole_s for side in (before, after))
    if stage != TOKEN and not any(counts):
        return None
    first, second = (list(side.times(stage).values()) for side in (before, after))
    kinds = list(zip(before.tokens(stage), after.tokens(stage), strict=False))
    follows, of_a_token = bool(stage.tokens), stage == TOKEN
    whole = shift_of(first, second, kinds, follows=follows, of_a_token=of_a_token)
    if whole is None or len(second) < 2 * ENOUGH:
        return None if whole is None else _Shifted(whole)
    at = change_of([math.exp(value) for value in whole.left])
    start, end = fmean(whole.left[:at]), fmean(whole.left[at:])
    after_it = [(tokens, more[at:]) for tokens, more in kinds]
    later = shift_of(first, second[at:], after_it, follows=follows, of_a_token=of_a_token)
    if later is None or abs(start) > abs(end) / 4:
        return _Shifted(whole)
    return _Shifted(later, at, 1 - at / len(second))


def _change(
    before: Side, after: Side, stage: Stage, shifted: _Shifted | None, sigmas: float
) -> Change:
    means = before.mean_s(stage), after.mean_s(stage)
    if shifted is None:
        return Change(stage.name, stage.title, *means)
    # The step was chosen among many.
    width = sigmas if shifted.since is None else _CHOSEN * sigmas
    change = _judged(stage.name, stage.title, shifted.shift, width, *means)
    if shifted.since is None or not change.changed:
        return change
    since = after.numbers[list(after.times(stage))[shifted.since]]
    return replace(change, since=since, share=shifted.share)


def _step(
    before: Side,
    after: Side,
    changes: Sequence[Change],
    shifts: Mapping[str, _Shifted | None],
    sigmas: float,
) -> Change:
    """All stages together: what each would take, and takes, for the tokens of the run after."""
    # Errors add up in full: stages follow the same tokens.
    usual, level, error, known = 0.0, 0.0, 0.0, False
    changes = [change for change in changes if change.name != TOKEN.name]
    for change in changes:
        shifted, first_s, then_s = shifts[change.name], change.before or 0.0, change.after or 0.0
        if shifted is None:
            # What so few occasions differ by may all be chance.
            usual, level = usual + first_s, level + then_s
            error += abs(then_s - first_s)
            continue
        known, expected_s = True, first_s * shifted.shift.lengths
        longer_s = expected_s * (shifted.shift.times - 1) * shifted.share
        usual, level = usual + expected_s, level + expected_s + longer_s
        error += expected_s * shifted.shift.times * shifted.shift.error * shifted.share
    rest_s = before.whole_s - sum(change.before or 0.0 for change in changes)
    usual, level = usual + rest_s, level + rest_s
    shift = None
    if known and min(usual, level) > 0:
        shift = Shift(level / usual, error / level, usual / before.whole_s, ())
    return _judged(ALL.name, ALL.title, shift, sigmas, before.whole_s, after.whole_s)


def _judged(
    name: str,
    title: str,
    shift: Shift | None,
    sigmas: float,
    before: float | None,
    after: float | None,
) -> Change:
    if shift is None:
        return Change(name, title, before, after)
    low, high = shift.interval(sigmas)
    beyond = not low <= 1 <= high and abs(math.log(shift.times)) >= math.log1p(_LEAST)
    return Change(name, title, before, after, shift.times, low, high, shift.lengths, beyond)


def _tokens(before: Side, after: Side) -> list[Change]:
    kinds = before.tokens(ALL), after.tokens(ALL)
    sigmas = _sigmas(len(_KINDS))
    return (
        [
            _judged(name, name, shift_of(first, second), sigmas, fmean(first), fmean(second))
            for name, first, second in zip(_KINDS, *kinds, strict=False)
            if min(*first, *second) > 0
        ]
        if all(kinds)
        else []
    )


def _causes(
    before: Sequence[Cause], after: Sequence[Cause]
) -> list[tuple[Cause, float | None, float | None]]:
    """Causes of both, those of the run after first."""
    causes = dict[tuple[object, ...], Cause]()
    shares: tuple[dict[tuple[object, ...], float], ...] = ({}, {})
    for share, side in ((shares[1], after), (shares[0], before)):
        for cause in side:
            place = (cause.kind, *sorted(at for at in cause.where.items() if at[0] not in _IDS))
            causes.setdefault(place, cause)
            share[place] = share.get(place, 0.0) + cause.share
    first, second = shares
    return [(cause, first.get(place), second.get(place)) for place, cause in causes.items()]
