"""How like a recorded run another one is: times of stages, what was in flight, and the ledger.

*Accuracy* is 1 - |replayed - recorded| / recorded, of the time of all paired steps together; what
slept is not in it, and steps that warm up neither, as long as two others are left.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean
from typing import Final, Literal

from rlvr_probe.analysis.causes.baselines import ENOUGH
from rlvr_probe.analysis.fidelity.pairs import Pair, pair_steps
from rlvr_probe.analysis.fidelity.run import Batch, Run
from rlvr_probe.analysis.ledger import CATEGORIES
from rlvr_probe.analysis.stages import ALL, STAGES
from rlvr_probe.analysis.statistics import block_bootstrap
from rlvr_probe.exceptions import RecordingError
from rlvr_probe.model.replay_note import scaled

__all__ = ["Card", "Flight", "Kind", "Lengths", "Likeness", "make_card"]

Kind = Literal["replay", "ceiling", "naive"]

_LEFT: Final = 2
"""Steps that are left at least where those that warm up are omitted."""

_TENTHS: Final = 10
_REWARD, _TOOLS, _SLEPT = "reward", "tool_call", "slept"


@dataclass(frozen=True, slots=True)
class Likeness:
    """How like a time of the recorded steps is.

    Attributes:
        name: Of the stage; ``step`` for all of them.
        title: What takes it, in words.
        recorded, replayed: Mean of a step, s; None where it never took place.
        steps: Paired steps in which it is known.
        accuracy: Of the sums; None unless both took place.
        low, high: 95 % interval of the accuracy; None where steps are too few.
        by_step: Mean absolute error of single steps, as a share of each.
        bias: Of the sums, as a share; above 0 where the other run takes longer.
    """

    name: str
    title: str
    recorded: float | None
    replayed: float | None
    steps: int
    accuracy: float | None = None
    low: float | None = None
    high: float | None = None
    by_step: float | None = None
    bias: float | None = None


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many samples have the recorded prompt and response lengths.

    Attributes:
        exact: That many.
        samples: Of all that were recorded in paired steps.
        scale: What recorded lengths were multiplied by first; None if by nothing.
    """

    exact: int
    samples: int
    scale: str | None


@dataclass(frozen=True, slots=True)
class Flight:
    """Requests in flight; of each pair the recorded one, then that of the other run.

    Attributes:
        profile: Mean number in each tenth of the rollout of a step.
        off: Mean absolute difference of these, as a share of the recorded mean.
        most: Most that were recorded at once.
        speed: Tokens per second while 0 to a tenth of that were in flight, and so on; None where
            so many never were.
    """

    profile: tuple[Sequence[float], Sequence[float]]
    off: float
    most: int
    speed: Sequence[tuple[float | None, float | None]]


@dataclass(frozen=True, slots=True)
class Card:
    """A run beside the recorded one.

    Attributes:
        kind: A replay, the original run again, or a replay of means.
        recorded, run: Both.
        pairs: Steps that belong together; what is said of times is of these.
        warm_up: How many more were omitted because they warm up.
        slept: What slept, and is in no time but that of ``waits``.
        lengths: None where there are none, as in a log.
        step: All that was computed in a step.
        stages: Without what slept.
        waits: What slept; None if nothing did.
        last: From the start of the first trajectory of a step to the end of the last one.
        ledger: By category, shares of GPU time, recorded and of the run.
        elsewhere: Share of GPU time that is in another category; None without a ledger.
        flight: None where it is unknown.
        omitted: What is unknown, and why, in sentences.
    """

    kind: Kind
    recorded: Run
    run: Run
    pairs: Sequence[Pair]
    warm_up: int
    slept: Sequence[str]
    lengths: Lengths | None
    step: Likeness
    stages: Sequence[Likeness]
    waits: Likeness | None
    last: Likeness | None
    ledger: Mapping[str, tuple[float, float]]
    elsewhere: float | None
    flight: Flight | None
    omitted: Sequence[str]


def make_card(recorded: Run, run: Run, kind: Kind, slept: Sequence[str]) -> Card:
    """The card of a run.

    Args:
        recorded: The original.
        run: The other one.
        kind: What that is; a replay of means is naive, whatever this says.
        slept: What slept in any of the runs beside the original: it is taken out of all of them.

    Raises:
        RecordingError: No steps belong together, or what slept in one is unknown.
    """
    both = pair_steps(recorded, run)
    warm = {pair for pair in both if pair[0] in recorded.starts or pair[1] in run.starts}
    pairs = [pair for pair in both if pair not in warm]
    if len(pairs) < _LEFT:
        pairs = both
    theirs = _computed(recorded, [step for step, _ in pairs], slept)
    ours = _computed(run, [step for _, step in pairs], slept)
    lengths, ledger = _lengths(recorded, run), _ledger(recorded, run, pairs)
    flight = _flight(recorded, run, pairs)
    last = _likeness("last", "until the last trajectory", recorded.last, run.last, pairs)
    omitted = [f"{what}: a log has none" for what, known in (
        ("lengths", lengths), ("the ledger", ledger),
    ) if not known]  # fmt: skip
    if flight is None:
        sources = " and ".join(dict.fromkeys((recorded.source, run.source)))
        what = "in flight" if last.bias is not None else "in flight, and the last trajectory"
        omitted.append(f"what was {what}: requests of {sources} have no times of their own")

    def likeness(name: str, title: str) -> Likeness:
        return _likeness(name, title, theirs.get(name, {}), ours.get(name, {}), pairs)

    return Card(
        kind="naive" if run.note is not None and run.note.naive else kind,
        recorded=recorded,
        run=run,
        pairs=pairs,
        warm_up=len(both) - len(pairs),
        slept=slept,
        lengths=lengths,
        step=likeness(ALL.name, ALL.title),
        stages=[
            likeness(stage.name, stage.title)
            for stage in STAGES
            if stage.name in theirs or stage.name in ours
        ],
        waits=likeness(_SLEPT, "what slept") if slept else None,
        last=None if last.bias is None else last,
        ledger=ledger,
        elsewhere=sum(abs(first - second) for first, second in ledger.values()) / 2
        if ledger
        else None,
        flight=flight,
        omitted=omitted,
    )


def _computed(run: Run, steps: Sequence[int], slept: Sequence[str]) -> dict[str, dict[int, float]]:
    """Times of these steps by stage, without what slept, which has a name of its own; s.

    Raises:
        RecordingError: It is unknown how long verification slept.
    """
    asleep = dict[int, float]()
    times = {name: dict(known) for name, known in run.stages.items()}
    times[ALL.name] = dict(run.whole)
    verification = times.pop(_REWARD, {}) if _REWARD in slept else {}
    for step in steps:
        asleep[step] = 0.0
        if _REWARD in slept:
            if step not in run.verified:
                raise RecordingError(
                    f"how long verification took in step {step} of {run.source} is unknown, and is"
                    " not taken for 0: what was computed there cannot be compared"
                )
            asleep[step] = verification.get(step, 0.0)
        if _TOOLS in slept and (tools_s := run.tools.get(step)):
            asleep[step] += tools_s
            if step in (rollout := times.get("rollout", {})):
                rollout[step] -= tools_s
        if step in times[ALL.name]:
            times[ALL.name][step] -= asleep[step]
    return times | {_SLEPT: asleep}


def _likeness(
    name: str, title: str, recorded: Mapping[int, float], replayed: Mapping[int, float],
    pairs: Sequence[Pair],
) -> Likeness:  # fmt: skip
    known = [
        (recorded[first], replayed[second])
        for first, second in pairs
        if first in recorded and second in replayed
    ]
    means = (
        _mean([recorded[first] for first, _ in pairs if first in recorded]),
        _mean([replayed[second] for _, second in pairs if second in replayed]),
    )
    sums = [sum(times) for times in zip(*known, strict=True)]
    if not known or min(sums) <= 0:
        return Likeness(name, title, means[0], means[1], len(known))
    bias = sums[1] / sums[0] - 1
    accuracy = 1 - abs(bias)
    # Of what takes place in some steps alone they do not show the noise.
    enough = len(known) >= ENOUGH and min(first for first, _ in known) > 0
    low, high = block_bootstrap(known) if enough else (None, None)
    if low is not None and high is not None:
        ends = 1 - abs(low - 1), 1 - abs(high - 1)
        # What the ratio lies between may have 1 in it, where the accuracy is 1.
        low, high = min(*ends, accuracy), 1.0 if low <= 1 <= high else max(*ends, accuracy)
    off = [abs(second / first - 1) for first, second in known if first > 0]
    return Likeness(
        name, title, means[0], means[1], len(known), accuracy, low, high, fmean(off), bias
    )


def _mean(times: Sequence[float]) -> float | None:
    return fmean(times) if any(times) else None


def _lengths(recorded: Run, run: Run) -> Lengths | None:
    """Counts samples of batches that belong together, those of steps that warm up, too."""
    if not (recorded.batches and run.batches):
        return None
    scale = None if run.note is None else run.note.scale
    factor = Fraction(scale or 1)
    theirs = defaultdict[int, list[Batch]](list)
    for batch in recorded.batches:
        theirs[batch.step].append(batch)
    # Several batches of a step are in the same order in both.
    steps = [batch.step for batch in run.batches] if run.note is None else run.note.steps
    exact = samples = 0
    for step, ours in zip(steps, run.batches, strict=False):
        if not theirs[step]:
            continue
        known = theirs[step].pop(0)
        samples += len(known.prompts)
        exact += sum(
            min(prompt, response) > 0
            and (scaled(prompt, factor), scaled(response, factor)) == lengths
            for prompt, response, lengths in zip(
                known.prompts, known.responses, zip(ours.prompts, ours.responses, strict=True),
                strict=False,
            )
        )  # fmt: skip
    return Lengths(exact, samples, scale)


def _ledger(
    recorded: Run, run: Run, pairs: Sequence[Pair]
) -> dict[str, tuple[float, float]]:  # fmt: skip
    shares = [
        _shares([known.categories[step] for step in steps if step in known.categories])
        for known, steps in zip((recorded, run), zip(*pairs, strict=True), strict=True)
    ]
    if not all(shares):
        return {}
    return {
        category: (shares[0].get(category, 0.0), shares[1].get(category, 0.0))
        for category in CATEGORIES
        if category in shares[0] or category in shares[1]
    }


def _shares(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of GPU time, by category."""
    sums = defaultdict[str, float](float)
    for times in steps:
        for category, gpu_s in times.items():
            sums[category] += gpu_s
    whole = sum(sums.values())
    return {category: gpu_s / whole for category, gpu_s in sums.items() if gpu_s}


def _flight(recorded: Run, run: Run, pairs: Sequence[Pair]) -> Flight | None:
    both = [
        (first, second)
        for first, second in pairs
        if first in recorded.profile and second in run.profile
    ]
    if not both:
        return None
    theirs, ours = (
        [fmean(known.profile[step][tenth] for step in steps) for tenth in range(_TENTHS)]
        for known, steps in zip((recorded, run), zip(*both, strict=True), strict=True)
    )
    off = fmean(abs(first - second) for first, second in zip(theirs, ours, strict=True))
    most = max(flying for step, _ in both for flying, *_ in recorded.speed.get(step, [(1, 0, 0)]))
    speeds = (
        _speed([row for step in steps for row in known.speed.get(step, ())], most)
        for known, steps in zip((recorded, run), zip(*both, strict=True), strict=True)
    )
    return Flight((theirs, ours), off / fmean(theirs), most, list(zip(*speeds, strict=True)))


def _speed(rows: Sequence[tuple[int, float, float]], most: int) -> list[float | None]:
    """Tokens per second by tenth of ``most`` requests in flight; more count to the last one."""
    seconds, tokens = [0.0] * _TENTHS, [0.0] * _TENTHS
    for flying, row_s, row_tokens in rows:
        tenth = min(_TENTHS, math.ceil(_TENTHS * flying / most)) - 1
        seconds[tenth] += row_s
        tokens[tenth] += row_tokens
    return [made / took if took else None for made, took in zip(tokens, seconds, strict=True)]
