"""Draws a wider scenario: one whose faults may have a course.

Their sizes are drawn by what they cost: a share of the run, most of the time between 2 and 50 %. A
few steps of the run without a fault say what its stages take.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tests.simulator.courses import (
    Course,
    Form,
    Lasting,
    LeakingReward,
    RecurringStraggler,
    SlowBetweenSteps,
    SlowCheckpoint,
    SlowData,
    SlowEvaluation,
    SlowHost,
    SlowLogprob,
    SlowRollout,
    SlowUpdate,
    WarmUp,
)
from tests.simulator.draws import SECOND, Draws, Purpose, generator
from tests.simulator.faults import Fault
from tests.simulator.scenarios import DRAWN, log_uniform, sized
from tests.simulator.setting import SHAPES, Scenario
from tests.simulator.truth import play

__all__ = ["WIDER_KINDS", "wider_scenario"]

_STAGES = {
    "work.rollout": "rollout", "wait.rollout": "rollout", "work.old_logprob": "logprob",
    "work.ref_logprob": "logprob", "work.update_actor": "update", "wait.update": "update",
    "eval": "eval",
}  # fmt: skip
_MOST = 40.0
"""A stage takes at most so many times as long, and once more."""
_MEASURED = 4
"""Steps of the run without a fault; the first one is not like the others."""


@dataclass(frozen=True)
class _Sound:
    """A scenario without a fault.

    Attributes:
        takes: What its stages take, seconds of a step; ``step`` is the step, ``all`` the run.
        busy: Seconds of a step in which an engine decodes.
    """

    of: Scenario
    takes: Mapping[str, float]
    busy: float

    def seconds(self, one: random.Random, course: Course, most: float = 0.5) -> float:
        """What has to be lost where all of a fault is, so that it costs a share that is drawn."""
        share = log_uniform(one, 0.02, most)
        return share / (1 - share) * self.takes["all"] / course.shares

    def times(self, one: random.Random, course: Course, stage: str, most: float = 0.5) -> float:
        """Size of a fault with which a stage loses that."""
        return min(_MOST, self.seconds(one, course, most) / self.takes[stage])

    def occasions(self, every: int) -> range:
        """The steps behind which something takes place."""
        return range(every, self.of.steps + 1, every)


def _measured(of: Scenario) -> _Sound:
    """Play some steps without a fault."""
    short = replace(
        of, steps=_MEASURED, eval_every=int(of.shape != "async"), checkpoint_every=0, faults=()
    )
    books = play(short, Draws(of.seed, of.lengths, of.group_size), ())[0].books
    part = (_MEASURED - 1) * books.gpus * SECOND
    takes, busy = defaultdict[str, float](float), 0.0
    for step, held in books.steps().items():
        for category, ns in held.items() if step > 1 else ():
            stage = "rollout" if category.startswith("discarded.") else _STAGES.get(category, "")
            takes[stage] += ns / part
            takes["step"] += ns / part if stage != "eval" else 0.0
            busy += ns / part if category == "work.rollout" else 0.0
    takes["all"] = of.steps * takes["step"]
    if of.eval_every:
        takes["all"] += takes["eval"] * (of.steps // of.eval_every)
    if of.checkpoint_every:
        takes["all"] += of.costs.checkpoint_s * (of.steps // of.checkpoint_every)
    engines = of.rollout_gpus if of.shape == "async" else of.ranks
    return _Sound(of, takes, busy * of.gpus / engines)


def _course(one: random.Random, steps: Sequence[int], *forms: Form) -> Course:
    """One of the forms, in some of the steps that it can be in."""
    form, count = one.choice(forms), len(steps)
    if form == "window":
        length = one.randint(3, count // 3)
        first = one.randint(1, count - length - 1)
        return Course(form, tuple(steps[first : first + length]))
    if form == "since":
        return Course(form, tuple(steps[one.randint(max(1, count // 4), count * 3 // 4) :]))
    if form == "now_and_then":
        every = one.randint(2, max(2, min(6, count // 2)))
        return Course(form, tuple(steps[every - 1 :: every]))
    return Course(form, tuple(steps))


_Draw = Callable[[random.Random, _Sound], Fault]


def _stage(
    kind: Callable[[float, Course], Lasting], stage: str, one: random.Random, sound: _Sound
) -> Fault:
    """A stage of the step that is slower for a while, from a step on, or ever more."""
    course = _course(one, _steps(sound), "window", "since", "growth")
    return kind(sound.times(one, course, stage), course)


def _rollout(one: random.Random, sound: _Sound) -> Fault:
    if sound.of.shape != "async":
        return _stage(SlowRollout, "rollout", one, sound)
    # Beside the training nothing is lost until the engine takes longer than a step.
    course = _course(one, _steps(sound), "window", "since", "growth")
    size = (sound.takes["step"] + sound.seconds(one, course)) / sound.busy - 1
    return SlowRollout(min(_MOST, size), course)


def _data(one: random.Random, sound: _Sound) -> Fault:
    course = _course(one, _steps(sound), "each", "growth", "window")
    return SlowData(sound.seconds(one, course), course)


def _between(one: random.Random, sound: _Sound) -> Fault:
    course = _course(one, range(1, sound.of.steps), "each", "now_and_then")
    return SlowBetweenSteps(sound.seconds(one, course), course)


def _checkpoint(one: random.Random, sound: _Sound) -> Fault:
    course = _course(one, sound.occasions(sound.of.checkpoint_every), "since", "each")
    size = sound.seconds(one, course) / sound.of.costs.checkpoint_s
    return SlowCheckpoint(min(_MOST, size), course)


def _evaluation(one: random.Random, sound: _Sound) -> Fault:
    steps = sound.occasions(sound.of.eval_every)
    course = _course(one, steps, "growth", "now_and_then", "each")
    return SlowEvaluation(sound.times(one, course, "eval"), course)


def _reward(one: random.Random, sound: _Sound) -> Fault:
    of = sound.of
    course, source = Course("growth", tuple(_steps(sound))), one.randrange(len(of.sources))
    rows = of.prompts * of.group_size / len(of.sources)
    if of.shape == "trl":
        takes, hidden = max(1.0, rows / of.ranks / of.reward_workers), 0.0
        takes *= math.exp(2 * of.lengths.spread)
    else:
        # Nothing is lost while what is verified is behind what is still generated.
        takes = rows / of.reward_workers
        hidden = sound.takes["rollout" if of.shape == "verl" else "step"]
    takes *= of.lengths.reward_s[source]
    size = (hidden + sound.seconds(one, course)) / takes
    return LeakingReward(min(3 * _MOST, size), course, source)


def _straggler(one: random.Random, sound: _Sound) -> Fault:
    """One trajectory, a whole group or two of several steps, one after another or each second."""
    of, lengths = sound.of, sound.of.lengths
    count, stride, who = one.randint(3, 8), one.choice((1, 2)), one.choice(("one", "group", "two"))
    first = one.randint(1, of.steps - stride * (count - 1))
    steps = tuple(range(first, first + stride * count, stride))
    places = list[tuple[int, int, int]]()
    for step in steps:
        for number in one.sample(range(of.prompts), 2 if who == "two" else 1):
            samples = range(of.group_size) if who == "group" else [one.randrange(of.group_size)]
            places += [(step, number, sample) for sample in samples]
    longest = lengths.median * math.exp(2.8 * math.hypot(lengths.between, lengths.within))
    size = min(lengths.cap, one.uniform(1.5, 5.0) * longest)
    course = Course("window" if stride == 1 else "now_and_then", steps)
    return RecurringStraggler(float(int(size)), course, tuple(places))


def _warm_up(one: random.Random, sound: _Sound) -> Fault:
    course, stage = Course("window", (1,)), one.choice(("rollout", "update"))
    return WarmUp(sound.times(one, course, stage, most=0.3), course, stage)


def _host(one: random.Random, sound: _Sound) -> Fault:
    of, course = sound.of, _course(one, _steps(sound), "window")
    node = one.randrange(of.nodes)
    first = node * of.gpus_per_node
    gpus = first, min(of.gpus, first + of.gpus_per_node) - 1
    return SlowHost(sound.times(one, course, "step"), course, node, gpus)


def _steps(sound: _Sound) -> range:
    return range(1, sound.of.steps + 1)


_WIDER: dict[str, tuple[tuple[str, ...], _Draw]] = {
    "slow_data": (("trl", "async"), _data),
    "slow_between_steps": (SHAPES, _between),
    "slow_checkpoint": (SHAPES, _checkpoint),
    "slow_evaluation": (("trl", "verl"), _evaluation),
    "slow_rollout": (SHAPES, _rollout),
    "slow_update": (SHAPES, partial(_stage, SlowUpdate, "update")),
    "slow_logprob": (("trl", "verl"), partial(_stage, SlowLogprob, "logprob")),
    "slow_reward": (SHAPES, _reward),
    "straggler": (("trl", "verl"), _straggler),
    "warm_up": (SHAPES, _warm_up),
    "slow_host": (SHAPES, _host),
}
"""Each fault with a course: the shapes that it can be in, and how it is drawn."""

WIDER_KINDS = tuple(_WIDER)
"""Names of all of them."""


def wider_scenario(seed: int) -> Scenario:
    """The wider scenario of a seed: one in seven is clean, one in six has two faults.

    The first fault has a course, the second one may be any.
    """
    one = generator(seed, Purpose.SCENARIO, 1)
    chance = one.random()
    count = 0 if chance < 1 / 7 else 2 if chance < 1 / 7 + 1 / 6 else 1
    kinds, shapes = list[str](), tuple[str, ...](SHAPES)
    for drawn in (_WIDER, {**DRAWN, **_WIDER})[:count]:
        fitting = [
            kind for kind, (where, _) in drawn.items()
            if kind not in kinds and set(where) & set(shapes)
        ]  # fmt: skip
        kinds.append(one.choice(fitting))
        where = drawn[kinds[-1]][0]
        shapes = tuple(shape for shape in shapes if shape in where)
    found = sized(one, seed, one.choice(shapes), kinds)
    costs = replace(found.costs, data_s=log_uniform(one, 0.005, 0.05))
    found = replace(found, costs=costs, **_occasions(one, kinds))
    sound = _measured(found)
    faults = [
        _WIDER[kind][1](one, sound) if kind in _WIDER else DRAWN[kind][1](one, found)
        for kind in kinds
    ]
    return replace(found, faults=tuple(faults))


def _occasions(one: random.Random, kinds: list[str]) -> dict[str, Any]:
    """Checkpoints and evaluations take place where they are slow."""
    found = dict[str, Any]()
    for kind, every in (("slow_checkpoint", "checkpoint_every"), ("slow_evaluation", "eval_every")):
        if kind in kinds:
            found[every] = one.choice((1, 2, 3, 5))
    return found
