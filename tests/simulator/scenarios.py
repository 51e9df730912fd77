"""Draws a scenario: shape, sizes, and what is wrong with it, if anything."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

from tests.simulator.draws import Lengths, Purpose, generator
from tests.simulator.faults import (
    AggressiveFilter,
    ClockSkew,
    Fault,
    SerialReward,
    SlowRank,
    SlowTool,
    SlowWeightSync,
    StarvingTrainer,
    Straggler,
    ThermalThrottling,
    WaitingRollout,
)
from tests.simulator.setting import Costs, Scenario

__all__ = ["DRAWN", "KINDS", "log_uniform", "scenario", "sized"]

_Draw = Callable[[random.Random, Scenario], Fault]


def log_uniform(one: random.Random, low: float, high: float) -> float:
    """A number whose logarithm is uniform."""
    return math.exp(one.uniform(math.log(low), math.log(high)))


def _straggler(one: random.Random, of: Scenario) -> Fault:
    size = log_uniform(one, 3_000, 16_384)
    place = one.randrange(of.prompts), one.randrange(of.group_size)
    return Straggler(size, one.randint(1, of.steps), *place)


def _thermal(one: random.Random, of: Scenario) -> Fault:
    size, gpu = log_uniform(one, 0.03, 1.0), one.randrange(of.ranks)
    return ThermalThrottling(size, gpu, one.randint(1, of.steps // 2))


DRAWN: dict[str, tuple[tuple[str, ...], _Draw]] = {
    "slow_rank": (
        ("trl", "verl"),
        lambda one, of: SlowRank(log_uniform(one, 0.02, 1.0), one.randrange(of.ranks)),
    ),
    "straggler": (("trl", "verl"), _straggler),
    "serial_reward": (
        ("trl", "verl"),
        lambda one, _: SerialReward(1 - log_uniform(one, 0.03, 0.6)),
    ),
    "slow_tool": (
        ("trl", "verl"),
        lambda one, of: SlowTool(log_uniform(one, 0.1, 20.0), one.randrange(len(of.sources))),
    ),
    "slow_weight_sync": (
        ("trl", "verl", "async"),
        lambda one, _: SlowWeightSync(log_uniform(one, 0.1, 10.0)),
    ),
    "aggressive_filter": (("verl",), lambda one, _: AggressiveFilter(log_uniform(one, 0.02, 0.7))),
    "starving_trainer": (("async",), lambda one, _: StarvingTrainer(log_uniform(one, 0.05, 3.0))),
    "waiting_rollout": (("async",), lambda one, _: WaitingRollout(log_uniform(one, 0.05, 3.0))),
    "thermal_throttling": (("trl", "verl"), _thermal),
    "clock_skew": (("trl", "verl"), lambda one, _: ClockSkew(2.0, 1)),
}
"""Each fault: the shapes that it can be in, and how it is drawn."""

KINDS = tuple(DRAWN)
"""Names of all faults."""


def scenario(seed: int) -> Scenario:
    """The scenario of a seed: one in seven is clean, one in five has two faults."""
    one = generator(seed, Purpose.SCENARIO)
    chance = one.random()
    count = 0 if chance < 1 / 7 else 2 if chance < 1 / 7 + 1 / 5 else 1
    kinds = list[str]()
    shapes: tuple[str, ...] = ("trl", "verl", "async")
    for _ in range(count):
        fitting = [
            kind
            for kind, (where, _) in DRAWN.items()
            if kind not in kinds and set(where) & set(shapes)
        ]
        kinds.append(one.choice(fitting))
        shapes = tuple(shape for shape in shapes if shape in DRAWN[kinds[-1]][0])
    found = sized(one, seed, one.choice(shapes), kinds)
    return replace(found, faults=tuple(DRAWN[kind][1](one, found) for kind in kinds))


def sized(one: random.Random, seed: int, shape: str, kinds: list[str]) -> Scenario:
    """A run of some size; it has what its faults need: tools, a filter, a second node."""
    tools = "slow_tool" in kinds or one.random() < 0.4
    ranks = one.choice((4, 8))
    # Verification that takes part of a second is behind the rollout of others, serial or not.
    slow = 4 if "serial_reward" in kinds and shape == "verl" else 1
    sources = one.choice((("math", "code"), ("math", "code", "search")))
    busy = shape == "async"
    filtered = "aggressive_filter" in kinds or (shape == "verl" and _luck(one, 0.2))
    lengths = Lengths(
        median=log_uniform(one, 250, 800),
        between=one.uniform(0.2, 0.6),
        within=one.uniform(0.3, 0.6),
        tail=one.choice((0.0, 0.005, 0.01)),
        turns=one.choice((2, 3, 4)) if tools else 1,
        tool_s=tuple(log_uniform(one, 0.3, 2.0) * (0.1 if shape == "trl" else 1) for _ in sources),
        reward_s=tuple(log_uniform(one, 0.05, 0.6) * slow for _ in sources),
        spread=one.uniform(0.2, 0.6),
    )
    costs = Costs(
        update_s=_balanced(lengths, ranks, one) if busy else log_uniform(one, 4e-4, 8e-4),
        sync_s=log_uniform(one, 0.5, 4.0),
        gap_s=log_uniform(one, 0.03, 0.2),
        rank_sd=one.choice((0.002, 0.005, 0.01)),
        noise_sd=one.choice((0.005, 0.01, 0.02)),
    )
    return Scenario(
        seed,
        shape=shape,
        steps=one.randint(20, 35),
        ranks=ranks,
        tp=one.choice((1, 2)) if shape == "verl" else 1,
        gpus_per_node=ranks // 2 if "clock_skew" in kinds else one.choice((ranks // 2, ranks)),
        prompts=32,
        workers=one.choice((4, 8)),
        sources=sources,
        generated=42 if filtered else 0,
        keep=0.9 if filtered else 1.0,
        mask_truncated=_luck(one, 0.3),
        eval_every=0 if busy else one.choice((0, 5, 10)),
        checkpoint_every=one.choice((0, 5, 10)),
        lengths=lengths,
        costs=costs,
    )


def _balanced(lengths: Lengths, ranks: int, one: random.Random) -> float:
    """Time of a token in the update, s, with which a trainer takes a little longer than rollout.

    With the engine and the groups at a time that :class:`Scenario` has by itself. The factor is
    for slots that are empty because a group ends with its longest trajectory.
    """
    costs, run = Costs(), Scenario(0)
    count = run.inflight * run.group_size
    each = costs.rate / (1 + count / (costs.half * run.rollout_gpus))
    spread = math.exp((lengths.between**2 + lengths.within**2) / 2)
    generated = lengths.median * spread
    return one.uniform(1.4, 1.6) * ranks / (count * each) * generated / (generated + 160)


def _luck(one: random.Random, share: float) -> bool:
    """True in that share of cases."""
    return one.random() < share
