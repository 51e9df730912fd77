"""Faults that have a course: they are in some steps of a run, in all of them, or grow.

Each of them makes one part of a run slower, and says in which category of the ledger the time is
lost by it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from tests.simulator.draws import Group, Plan
from tests.simulator.faults import Fault, lengthened

__all__ = [
    "Course", "Form", "Lasting", "LeakingReward", "RecurringStraggler", "SlowBetweenSteps",
    "SlowCheckpoint", "SlowData", "SlowEvaluation", "SlowHost", "SlowLogprob", "SlowRollout",
    "SlowUpdate", "WarmUp",
]  # fmt: skip

Form = Literal["each", "window", "growth", "since", "now_and_then"]


@dataclass(frozen=True)
class Course:
    """How much of a fault is in which step.

    Attributes:
        form: ``each``: in every step alike; ``growth``: none of it in the first of its steps, all
            of it in the last one, and along a line between them; ``window``: in steps that follow
            each other; ``since``: from a step to the end of the run; ``now_and_then``: in steps
            that are apart.
        steps: Those that it is in, ascending; of ``each`` and ``growth`` all of the run.
    """

    form: Form
    steps: tuple[int, ...]

    def share(self, step: int) -> float:
        """How much of the fault is in a step, from 0 to 1."""
        if step not in self.steps:
            return 0.0
        if self.form == "growth":
            return self.steps.index(step) / max(1, len(self.steps) - 1)
        return 1.0

    @property
    def shares(self) -> float:
        """The sum over all steps."""
        return sum(map(self.share, self.steps))

    def told(self) -> dict[str, Any]:
        """The form, and the steps where it is in some only."""
        some = {} if self.form in ("each", "growth") else {"steps": list(self.steps)}
        return {"form": self.form, **some}


@dataclass(frozen=True)
class Lasting(Fault):
    """A fault with a course.

    Attributes:
        category: Where the time is lost: ``data``, ``between``, ``checkpoint``, ``evaluation``,
            ``rollout``, ``update``, ``logprob``, ``reward`` or ``host``.
    """

    category: ClassVar[str] = ""
    course: Course

    def times(self, step: int) -> float:
        """How many times as long something takes in a step."""
        return 1 + self.size * self.course.share(step)

    def more(self, step: int) -> float:
        """How many seconds more something takes in a step."""
        return self.size * self.course.share(step)

    def told(self) -> dict[str, Any]:
        found = super().told()
        found.pop("course")
        return {**found, "category": self.category, **self.course.told()}


@dataclass(frozen=True)
class SlowData(Lasting):
    """Fetching the prompts of a step takes ``size`` seconds more."""

    kind = "slow_data"
    category = "data"

    def data(self, seconds: float, step: int) -> float:
        return seconds + self.more(step)


@dataclass(frozen=True)
class SlowBetweenSteps(Lasting):
    """Something that is not recorded takes ``size`` seconds between two steps."""

    kind = "slow_between_steps"
    category = "between"

    def between(self, seconds: float, step: int) -> float:
        return seconds + self.more(step)


@dataclass(frozen=True)
class SlowCheckpoint(Lasting):
    """A checkpoint takes ``1 + size`` times as long."""

    kind = "slow_checkpoint"
    category = "checkpoint"

    def checkpoint(self, seconds: float, step: int) -> float:
        return seconds * self.times(step)


@dataclass(frozen=True)
class SlowEvaluation(Lasting):
    """Decoding and scoring of an evaluation take ``1 + size`` times as long."""

    kind = "slow_evaluation"
    category = "evaluation"

    def evaluation(self, slowdown: float, step: int) -> float:
        return slowdown * self.times(step)


@dataclass(frozen=True)
class SlowRollout(Lasting):
    """Every rollout engine takes ``1 + size`` times as long, in an evaluation too."""

    kind = "slow_rollout"
    category = "rollout"

    def decode(self, slowdown: float, step: int) -> float:
        return slowdown * self.times(step)


@dataclass(frozen=True)
class SlowUpdate(Lasting):
    """An update takes ``1 + size`` times as long."""

    kind = "slow_update"
    category = "update"

    def update(self, seconds: float, step: int) -> float:
        return seconds * self.times(step)


@dataclass(frozen=True)
class SlowLogprob(Lasting):
    """Log-probabilities under both policies take ``1 + size`` times as long."""

    kind = "slow_logprob"
    category = "logprob"

    def logprob(self, seconds: float, step: int) -> float:
        return seconds * self.times(step)


@dataclass(frozen=True)
class LeakingReward(Lasting):
    """The reward function of one data source takes up to ``1 + size`` times as long."""

    kind = "slow_reward"
    category = "reward"
    source: int

    def group(self, step: int, group: Group) -> Group:
        if group.source != self.source:
            return group
        plans = [
            Plan(one.prompt_tokens, one.turns, one.reward_s * self.times(step), one.value, one.cut)
            for one in group.plans
        ]
        return replace(group, plans=plans)


@dataclass(frozen=True)
class RecurringStraggler(Lasting):
    """In several steps some trajectories generate at least ``size`` tokens each.

    Attributes:
        places: Step, group and sample of each.
    """

    kind = "straggler"
    category = "rollout"
    places: tuple[tuple[int, int, int], ...]

    def group(self, step: int, group: Group) -> Group:
        for where, number, sample in self.places:
            if (where, number) == (step, group.number):
                group = lengthened(group, sample, int(self.size))
        return group


@dataclass(frozen=True)
class WarmUp(Lasting):
    """The first step takes ``1 + size`` times as long in one of its stages.

    Attributes:
        stage: ``rollout`` or ``update``.
    """

    kind = "warm_up"
    stage: str

    def decode(self, slowdown: float, step: int) -> float:
        return slowdown * self.times(step) if self.stage == "rollout" else slowdown

    def update(self, seconds: float, step: int) -> float:
        return seconds * self.times(step) if self.stage == "update" else seconds

    def told(self) -> dict[str, Any]:
        return super().told() | {"category": self.stage}


@dataclass(frozen=True)
class SlowHost(Lasting):
    """Everything on one node takes ``1 + size`` times as long, its GPUs wait for its CPUs.

    Attributes:
        node: Whose GPUs are ``gpus``, first and last.
    """

    kind = "slow_host"
    category = "host"
    node: int
    gpus: tuple[int, int]

    def work(self, seconds: float, gpu: int, step: int) -> float:
        return self.host(seconds, gpu, step)

    def host(self, slowdown: float, gpu: int, step: int) -> float:
        first, last = self.gpus
        return slowdown * self.times(step) if first <= gpu <= last else slowdown
