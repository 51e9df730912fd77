"""How like a recorded run another one is: times of stages, what was in flight, and the ledger.

*Accuracy* is 1 - |replayed - recorded| / recorded, of the time of all paired steps together; what
slept is not in it, and steps that warm up neither, as long as two others are left.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean
from typing import Final, Literal

from rlvr_probe.analysis.causes.baselines import ENOUGH
from rlvr_probe.analysis.fidelity.pairs import Pair, pair_steps
from rlvr_probe.analysis.fidelity.run import Batch, Group, Run
from rlvr_probe.analysis.ledger import CATEGORIES
from rlvr_probe.analysis.stages import ALL, STAGES
from rlvr_probe.analysis.statistics import block_bootstrap
from rlvr_probe.exceptions import RecordingError
from rlvr_probe.model.replay_note import Half, scaled

__all__ = ["Card", "Flight", "Kind", "Lengths", "Likeness", "make_card"]

Kind = Literal["replay", "ceiling", "naive"]

_LEFT: Final = 2
"""Steps that are left at least where those that warm up are omitted."""

_TENTHS: Final = 10
_REWARD, _TOOLS, _SLEPT = "reward", "tool_call", "slept"
_HALVES: Final[Mapping[Half, Sequence[str]]] = {
    "rollout": ("rollout", _REWARD),
    "training": ("logprob", "update", "weight_sync"),
}
"""Stages that a replay of a half can be compared by."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """How like a time of the recorded steps is.

    Attributes:
        name: Of the stage; ``step`` for all of them.
        recorded, replayed: Mean of a step, s; None where it never took place.
        steps: Paired steps in which it is known.
        accuracy: Of the sums; None unless both took place.
        low, high: 95 % interval of the accuracy; None where steps are too few.
        by_step: Mean absolute error of single steps, as a share of each.
        bias: Of the sums, as a share; above 0 where the other run takes longer.
    """

    name: str
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
        tokens_per_s: While 0 to a tenth of that were in flight, and so on; None where so many never
            were.
    """

    profile: Sequence[tuple[float, float]]
    off: float
    most: int
    tokens_per_s: Sequence[tuple[float | None, float | None]]


@dataclass(frozen=True, slots=True)
class Card:
    """A run beside the recorded one.

    Attributes:
        kind: A replay, the original run again, or a replay of means.
        recorded, run: Both.
        pairs: Steps that belong together; what is said of times is of these.
        warm_up: How many more were omitted because they warm up.
        slept: What slept, and is in no time but that of ``waits``.
        lengths: None where they are not recorded in both, as in a log.
        step: All that was computed in a step; unknown where a half was replayed.
        stages: Without what slept.
        waits: What slept.
        last: From the start of the first trajectory of a step to the end of the last one.
        ledger: By category, shares of GPU time, recorded and of the run; none of a log.
        flight: None where it is unknown.
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
    waits: Likeness
    last: Likeness
    ledger: Mapping[str, tuple[float, float]]
    flight: Flight | None

    @property
    def half(self) -> Half | None:
        """Of each step that it did alone; None if all of it."""
        return None if self.run.note is None else self.run.note.half

    @property
    def elsewhere(self) -> float:
        """Share of GPU time that is in another category."""
        return sum(abs(first - second) for first, second in self.ledger.values()) / 2

    @property
    def omitted(self) -> list[str]:
        """What is unknown, and why, in sentences."""
        both = [("lengths", self.lengths), ("the ledger", self.ledger or self.half)]
        found = [f"{what}: not recorded in both" for what, known in both if not known]
        timed = [("what was in flight", self.flight), ("the last trajectory", self.last.bias)]
        if self.half is not None:
            found.append(f"whole steps, the ledger, other stages: {self.run.source} did the"
                         f" {self.half} half of each step alone")  # fmt: skip
        if self.half == "training":
            return found
        if unknown := [what for what, known in timed if known is None]:
            sources = " and ".join(dict.fromkeys((self.recorded.source, self.run.source)))
            found.append(
                f"{', and '.join(unknown)}: requests of {sources} have no times of their own"
            )
        return found


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
    half = None if run.note is None else run.note.half
    if half == "training":
        slept = ()
    both = pair_steps(recorded, run)
    pairs = [(a, b) for a, b in both if a not in recorded.starts and b not in run.starts]
    if len(pairs) < _LEFT:
        pairs = both
    steps = [step for step, _ in pairs], [step for _, step in pairs]
    times = _computed(recorded, steps[0], slept), _computed(run, steps[1], slept)
    stages = [stage.name for stage in STAGES if any(stage.name in side for side in times)
              if half is None or stage.name in _HALVES[half]]  # fmt: skip
    found = {
        name: _likeness(name, [side.get(name, {}) for side in times], pairs)
        for name in (ALL.name, *stages, _SLEPT)
    }
    return Card(
        kind="naive" if run.note is not None and run.note.naive else kind,
        recorded=recorded,
        run=run,
        pairs=pairs,
        warm_up=len(both) - len(pairs),
        slept=slept,
        lengths=_lengths(recorded, run),
        step=found[ALL.name] if half is None else Likeness(ALL.name, None, None, 0),
        stages=[found[name] for name in stages],
        waits=found[_SLEPT],
        last=_likeness(
            "last_trajectory", [recorded.last, {} if half == "training" else run.last], pairs
        ),
        ledger={} if half else _ledger(_gpu_s(recorded, steps[0]), _gpu_s(run, steps[1])),
        flight=None if half == "training" else _flight(recorded, run, pairs),
    )


def _computed(
    run: Run, steps: Sequence[int], slept: Sequence[str]
) -> dict[str, dict[int, float]]:  # fmt: skip
    """Times of these steps by stage, without what slept, which has a name of its own; s.

    Raises:
        RecordingError: It is unknown how long verification slept.
    """
    times = {name: dict(known) for name, known in run.stages.items()}
    whole, rollout, asleep = dict(run.whole), times.get("rollout", {}), dict[int, float]()
    verification = times.pop(_REWARD, {}) if _REWARD in slept else {}
    for step in steps:
        if _REWARD in slept and step not in run.verified:
            raise RecordingError(
                f"how long verification took in step {step} of {run.source} is unknown, and is not"
                " taken for 0: what was computed there cannot be compared"
            )
        tools_s = run.tools.get(step, 0.0) if _TOOLS in slept else 0.0
        asleep[step] = verification.get(step, 0.0) + tools_s
        for taken, less_s in ((whole, asleep[step]), (rollout, tools_s)):
            if step in taken:
                taken[step] -= less_s
    return {**times, ALL.name: whole, _SLEPT: asleep}


def _likeness(
    name: str, times: Sequence[Mapping[int, float]], pairs: Sequence[Pair]
) -> Likeness:  # fmt: skip
    recorded, replayed = times
    known = [(recorded[a], replayed[b]) for a, b in pairs if a in recorded and b in replayed]
    means = [
        fmean(side[step] for step in steps if step in side) if any(side.values()) else None
        for side, steps in zip(times, zip(*pairs, strict=True), strict=True)
    ]
    sums = [sum(column) for column in zip(*known, strict=True)]
    if not known or min(sums) <= 0:
        return Likeness(name, means[0], means[1], len(known))
    bias = sums[1] / sums[0] - 1
    low = high = None
    # Steps do not show the noise of what takes place in some of them.
    if len(known) >= ENOUGH and min(first for first, _ in known) > 0:
        ends = block_bootstrap(known)
        far = [1 - abs(end - 1) for end in ends]
        # Between them the ratio may be 1.
        low, high = min(far), 1.0 if min(ends) <= 1 <= max(ends) else max(far)
    off = fmean(abs(second / first - 1) for first, second in known if first > 0)
    return Likeness(name, means[0], means[1], len(known), 1 - abs(bias), low, high, off, bias)


def _lengths(recorded: Run, run: Run) -> Lengths | None:
    """Counts samples of batches that belong together, those of steps that warm up, too."""
    factor = Fraction(1) if run.note is None else run.note.factor
    theirs = defaultdict[int, list[Batch]](list)
    for batch in recorded.batches:
        theirs[batch.step].append(batch)
    # Several batches of a step are in the same order in both.
    steps = [batch.step for batch in run.batches] if run.note is None else run.note.steps
    exact = samples = 0
    for step, ours in zip(steps, run.batches, strict=False):
        if theirs[step]:
            known = theirs[step].pop(0)
            samples += len(known.prompts)
            exact += _exact(known.groups(lambda tokens: scaled(tokens, factor)), ours.groups())
    scale = None if run.note is None else run.note.scale
    return Lengths(exact, samples, scale) if samples else None


def _exact(recorded: Sequence[Group], replayed: Sequence[Group]) -> int:
    """Samples that have the recorded lengths, at their place in their group.

    Groups that are the same in both belong together, wherever they are in the batch: engines answer
    in another order each time. The others are compared in their order.
    """
    spare, exact, different = Counter(replayed), 0, list[Group]()
    for group in recorded:
        if spare[group]:
            spare[group] -= 1
            exact += sum(lengths is not None for lengths in group)
        else:
            different.append(group)
    return exact + sum(
        lengths is not None and lengths == made
        for group, other in zip(different, spare.elements(), strict=False)
        for lengths, made in zip(group, other, strict=False)
    )


def _gpu_s(run: Run, steps: Sequence[int]) -> dict[str, float]:
    """GPU time of these steps by category, s."""
    sums = defaultdict[str, float](float)
    for step in steps:
        for category, gpu_s in run.categories.get(step, {}).items():
            sums[category] += gpu_s
    return sums


def _ledger(
    recorded: Mapping[str, float], replayed: Mapping[str, float]
) -> dict[str, tuple[float, float]]:  # fmt: skip
    wholes = [sum(side.values()) for side in (recorded, replayed)]
    if not all(wholes):
        return {}
    return {
        name: (recorded.get(name, 0.0) / wholes[0], replayed.get(name, 0.0) / wholes[1])
        for name in CATEGORIES
        if recorded.get(name) or replayed.get(name)
    }


def _flight(recorded: Run, run: Run, pairs: Sequence[Pair]) -> Flight | None:
    both = [(a, b) for a, b in pairs if a in recorded.profile and b in run.profile]
    if not both:
        return None
    sides = list(zip((recorded, run), zip(*both, strict=True), strict=True))
    counts = (
        [fmean(side.profile[step][tenth] for step in steps) for tenth in range(_TENTHS)]
        for side, steps in sides
    )
    profile = list(zip(*counts, strict=True))
    most = max(flying for step, _ in both for flying, *_ in recorded.speed.get(step, [(1, 0, 0)]))
    speeds = (
        _speed([row for step in steps for row in side.speed.get(step, ())], most)
        for side, steps in sides
    )
    off = fmean(abs(first - second) for first, second in profile) / fmean(a for a, _ in profile)
    return Flight(profile, off, most, list(zip(*speeds, strict=True)))


def _speed(rows: Sequence[tuple[int, float, float]], most: int) -> list[float | None]:
    """Tokens per second by tenth of ``most`` requests in flight; more count to the last one."""
    seconds, tokens = [0.0] * _TENTHS, [0.0] * _TENTHS
    for flying, row_s, row_tokens in rows:
        tenth = min(_TENTHS, math.ceil(_TENTHS * flying / most)) - 1
        seconds[tenth] += row_s
        tokens[tenth] += row_tokens
    return [made / took if took else None for made, took in zip(tokens, seconds, strict=True)]
