"""What chance decides, drawn before anything happens: the same seed is the same workload.

Every entity and purpose has a generator of its own, made of the seed and of what it is for. A run
without a fault draws the same numbers as the run with it, whatever else takes place in it.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["SECOND", "Draws", "Group", "Lengths", "Plan", "Purpose", "generator"]

SECOND = 1_000_000_000


class Purpose(IntEnum):
    """What a generator is for."""

    SCENARIO = 1
    GROUP = 2
    EVAL_GROUP = 3
    STAGE = 4
    GAP = 5
    RANK = 6
    DEVICE = 7
    SYNC = 8


def generator(seed: int, purpose: Purpose, *which: int) -> random.Random:
    """The generator of one entity and purpose; numbers from 0 to 2**32 - 1."""
    number = seed << 8 | purpose
    for one in which:
        number = number << 32 | one
    return random.Random(number)


@dataclass(frozen=True)
class Lengths:
    """How long things are: tokens, seconds and how they vary.

    Attributes:
        median: Of a response, tokens.
        between, within: Standard deviation of the logarithm, between groups and within one.
        tail: Share of trajectories that are longer by a Pareto factor (index 1.5).
        cap: Most tokens of a response; what is cut there is truncated.
        turns: Most turns of a trajectory; 1 is a run without tools.
        tool_s, reward_s: Median latency of a tool call and of a verification, by data source, s.
        spread: Standard deviation of the logarithm of both.
    """

    median: float = 400.0
    between: float = 0.5
    within: float = 0.5
    tail: float = 0.01
    cap: int = 16_384
    turns: int = 1
    tool_s: tuple[float, ...] = (1.0, 1.0)
    reward_s: tuple[float, ...] = (0.3, 0.3)
    spread: float = 0.5


class Plan:
    """What one trajectory will do.

    Attributes:
        turns: Per turn: tokens generated, seconds of the tool call behind it, tokens of its result.
            The last turn has no tool call.
        reward_s: What its verification takes, s.
    """

    __slots__ = ("cut", "prompt_tokens", "reward_s", "turns", "value")

    def __init__(
        self,
        prompt_tokens: int,
        turns: list[tuple[int, float, int]],
        reward_s: float,
        value: float,
        cut: bool = False,
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.turns = turns
        self.reward_s = reward_s
        self.value = value
        self.cut = cut

    @property
    def generated(self) -> int:
        """Tokens that the engine generates."""
        return sum(tokens for tokens, _, _ in self.turns)

    @property
    def response_tokens(self) -> int:
        """Its response, results of tools in it included."""
        return sum(tokens + told for tokens, _, told in self.turns)


@dataclass(frozen=True)
class Group:
    """The trajectories of one prompt.

    Attributes:
        number: Its place in the step, or in the run where there are no steps.
        keep: Uniform number; the filter keeps the group if it is below its rate.
        plans: One per trajectory.
    """

    number: int
    source: int
    prompt: str
    keep: float
    plans: list[Plan]


class Draws:
    """Everything random of a run, by what it is for.

    Attributes:
        plain: Groups as they are without a fault, where they are kept for the next re-run.
    """

    def __init__(self, seed: int, lengths: Lengths, group_size: int, *, keep: bool = True) -> None:
        """``keep``: whether the groups are kept; a run too large for memory has no re-run."""
        self._keep = keep
        self.seed = seed
        self.lengths = lengths
        self.group_size = group_size
        self.plain: dict[tuple[Purpose, int, int], Group] = {}

    def group(self, step: int, number: int, purpose: Purpose = Purpose.GROUP) -> Group:
        """The ``number``-th group of a step, as it would be without a fault."""
        key = (purpose, step, number)
        found = self.plain.get(key)
        if found is None:
            size = 1 if purpose is Purpose.EVAL_GROUP else self.group_size
            found = self._draw(*key, size)
            if self._keep:
                self.plain[key] = found
        return found

    def factors(
        self, purpose: Purpose, which: tuple[int, ...], count: int, sd: float
    ) -> list[float]:
        """``count`` factors around 1, one per rank, log-normal."""
        draw = generator(self.seed, purpose, *which).gauss
        return [math.exp(draw(0.0, sd)) for _ in range(count)]

    def gap_ns(self, step: int, place: int, median_s: float) -> int:
        """Length of one gap between two stages, ns."""
        return round(SECOND * median_s * self.factors(Purpose.GAP, (step, place), 1, 0.4)[0])

    def _draw(self, purpose: Purpose, step: int, number: int, size: int) -> Group:
        lengths = self.lengths
        one = generator(self.seed, purpose, step, number)
        source = one.randrange(len(lengths.reward_s))
        prompt_tokens = 40 + int(one.expovariate(1 / 120.0))
        center = math.log(lengths.median) + one.gauss(0.0, lengths.between)
        keep, prompt = one.random(), f"{one.getrandbits(64):016x}"
        plans = [self._plan(one, source, prompt_tokens, center) for _ in range(size)]
        return Group(number, source, prompt, keep, plans)

    def _plan(self, one: random.Random, source: int, prompt_tokens: int, center: float) -> Plan:
        lengths = self.lengths
        length = math.exp(center + one.gauss(0.0, lengths.within))
        if one.random() < lengths.tail:
            length *= one.paretovariate(1.5)
        total = max(1, min(lengths.cap, int(length)))
        count = 1
        while count < lengths.turns and one.random() < 0.6:
            count += 1
        turns = list[tuple[int, float, int]]()
        left = total
        for turn in range(count - 1):
            tokens = max(1, int(left / (count - turn) * (0.5 + one.random())))
            told = 10 + int(one.expovariate(1 / 60.0))
            if tokens + told >= left:
                break
            tool_s = lengths.tool_s[source] * math.exp(one.gauss(0.0, lengths.spread))
            turns.append((tokens, tool_s, told))
            left -= tokens + told
        turns.append((left, 0.0, 0))
        reward_s = lengths.reward_s[source] * math.exp(one.gauss(0.0, lengths.spread))
        value = float(one.random() < 0.5)
        return Plan(prompt_tokens, turns, reward_s, value, length >= lengths.cap)
