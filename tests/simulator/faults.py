"""What may be wrong with a run: each fault is a small class with a size, and can be left out.

A fault changes what takes place, never what is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Any, ClassVar

from tests.simulator.draws import SECOND, Group, Plan

__all__ = [
    "AggressiveFilter", "ClockSkew", "Effects", "Fault", "SerialReward", "SlowRank", "SlowTool",
    "SlowWeightSync", "StarvingTrainer", "Straggler", "ThermalThrottling", "WaitingRollout",
    "lengthened",
]  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """No fault; each method gives back what it is given.

    Attributes:
        kind: Its name, as the judge knows it.
        size: 0 changes nothing; larger is worse.
    """

    kind: ClassVar[str] = ""
    size: float

    def work(self, seconds: float, gpu: int, step: int) -> float:
        """What a GPU takes for something that takes ``seconds`` without the fault."""
        return seconds

    def decode(self, slowdown: float, step: int) -> float:
        """Slowdown of every rollout engine."""
        return slowdown

    def host(self, slowdown: float, gpu: int, step: int) -> float:
        """Slowdown of what is done for a GPU on its host."""
        return slowdown

    def data(self, seconds: float, step: int) -> float:
        """What fetching the prompts of a step takes."""
        return seconds

    def between(self, seconds: float, step: int) -> float:
        """What is done after a step, before the next one, and not recorded."""
        return seconds

    def checkpoint(self, seconds: float, step: int) -> float:
        """What a checkpoint takes."""
        return seconds

    def evaluation(self, slowdown: float, step: int) -> float:
        """Slowdown of what an evaluation does, beside that of the engines."""
        return slowdown

    def logprob(self, seconds: float, step: int) -> float:
        """What log-probabilities take on a rank, under each of both policies."""
        return seconds

    def update(self, seconds: float, step: int) -> float:
        """What an update of the model takes on a rank."""
        return seconds

    def group(self, step: int, group: Group) -> Group:
        """A group as it is played."""
        return group

    def reward_workers(self, count: int) -> int:
        """Verifications of one function that take place at the same time."""
        return count

    def sync(self, seconds: float) -> float:
        """What moving weights takes."""
        return seconds

    def keep(self, rate: float) -> float:
        """Share of groups that pass the filter."""
        return rate

    def clock_ns(self, ahead: int, node: int) -> int:
        """What the wall clock of a node is ahead."""
        return ahead

    def throttle(self, slowdown: float, gpu: int, step: int) -> float:
        """Slowdown by temperature, which counters of the GPU tell."""
        return slowdown

    def told(self) -> dict[str, Any]:
        """For the truth: kind, size and where it is."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class SlowRank(Fault):
    """One GPU takes ``1 + size`` times as long for everything, and its counters show nothing."""

    kind = "slow_rank"
    rank: int

    def work(self, seconds: float, gpu: int, step: int) -> float:
        return seconds * (1 + self.size) if gpu == self.rank else seconds


@dataclass(frozen=True)
class ThermalThrottling(Fault):
    """From a step on one GPU takes ``1 + size`` times as long, held down by temperature."""

    kind = "thermal_throttling"
    gpu: int
    first_step: int = 1

    def work(self, seconds: float, gpu: int, step: int) -> float:
        return seconds * self.throttle(1.0, gpu, step)

    def throttle(self, slowdown: float, gpu: int, step: int) -> float:
        hot = gpu == self.gpu and step >= self.first_step
        return slowdown * (1 + self.size) if hot else slowdown


@dataclass(frozen=True)
class Straggler(Fault):
    """One trajectory generates at least ``size`` tokens in all."""

    kind = "straggler"
    step: int
    group_number: int
    sample: int

    def group(self, step: int, group: Group) -> Group:
        if (step, group.number) != (self.step, self.group_number):
            return group
        return lengthened(group, self.sample, int(self.size))


@dataclass(frozen=True)
class SerialReward(Fault):
    """That share of the workers of every reward function is gone; of 1 all but one."""

    kind = "serial_reward"

    def reward_workers(self, count: int) -> int:
        return max(1, round(count * (1 - self.size)))


@dataclass(frozen=True)
class SlowTool(Fault):
    """Tool calls of one data source take ``1 + size`` times as long."""

    kind = "slow_tool"
    source: int

    def group(self, step: int, group: Group) -> Group:
        if group.source != self.source:
            return group
        return replace(group, plans=[self._slow(plan) for plan in group.plans])

    def _slow(self, plan: Plan) -> Plan:
        turns = [(tokens, tool_s * (1 + self.size), told) for tokens, tool_s, told in plan.turns]
        return Plan(plan.prompt_tokens, turns, plan.reward_s, plan.value, plan.cut)


@dataclass(frozen=True)
class SlowWeightSync(Fault):
    """Moving weights takes ``1 + size`` times as long."""

    kind = "slow_weight_sync"

    def sync(self, seconds: float) -> float:
        return seconds * (1 + self.size)


@dataclass(frozen=True)
class AggressiveFilter(Fault):
    """That share of the groups that would pass the filter are thrown away as well."""

    kind = "aggressive_filter"

    def keep(self, rate: float) -> float:
        return rate * (1 - self.size)


@dataclass(frozen=True)
class StarvingTrainer(Fault):
    """Asynchronous: rollout engines take ``1 + size`` times as long, and the trainer waits."""

    kind = "starving_trainer"

    def decode(self, slowdown: float, step: int) -> float:
        return slowdown * (1 + self.size)


@dataclass(frozen=True)
class WaitingRollout(Fault):
    """Asynchronous: updates take ``1 + size`` times as long, and the full queue holds rollout."""

    kind = "waiting_rollout"

    def update(self, seconds: float, step: int) -> float:
        return seconds * (1 + self.size)


@dataclass(frozen=True)
class ClockSkew(Fault):
    """The wall clock of one node is ahead by ``size`` seconds: nothing is lost by it."""

    kind = "clock_skew"
    node: int = 1

    def clock_ns(self, ahead: int, node: int) -> int:
        return ahead + round(self.size * SECOND) if node == self.node else ahead


def lengthened(group: Group, sample: int, generated: int) -> Group:
    """A group of which one trajectory generates at least so many tokens."""
    plans = list(group.plans)
    one = plans[sample]
    more = generated - one.generated
    if more <= 0:
        return group
    *first, (tokens, tool_s, told) = one.turns
    turns = [*first, (tokens + more, tool_s, told)]
    plans[sample] = Plan(one.prompt_tokens, turns, one.reward_s, one.value, one.cut)
    return replace(group, plans=plans)


class Effects:
    """All faults of a run together: the same methods, one after another."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.faults = faults

    def group(self, step: int, group: Group) -> Group:
        """As :meth:`Fault.group`."""
        return reduce(lambda found, one: one.group(step, found), self.faults, group)

    def work(self, seconds: float, gpu: int, step: int) -> float:
        """As :meth:`Fault.work`."""
        return reduce(lambda found, one: one.work(found, gpu, step), self.faults, seconds)

    def host(self, gpus: Iterable[int], step: int) -> float:
        """Slowdown of the slowest host of these GPUs."""
        return max(
            reduce(lambda found, one: one.host(found, gpu, step), self.faults, 1.0) for gpu in gpus
        )

    def throttle(self, gpu: int, step: int) -> float:
        """As :meth:`Fault.throttle`."""
        return reduce(lambda found, one: one.throttle(found, gpu, step), self.faults, 1.0)

    def decode(self, gpus: range, step: int) -> float:
        """Slowdown of an engine on these GPUs: that of the slowest."""
        slowest = max(self.work(1.0, gpu, step) for gpu in gpus)
        return reduce(lambda found, one: one.decode(found, step), self.faults, slowest)

    def clock_ns(self, node: int) -> int:
        """As :meth:`Fault.clock_ns`."""
        return reduce(lambda found, one: one.clock_ns(found, node), self.faults, 0)

    def reward_workers(self, count: int) -> int:
        """As :meth:`Fault.reward_workers`."""
        return self._each(count, lambda one: one.reward_workers)

    def data(self, seconds: float, step: int) -> float:
        """As :meth:`Fault.data`."""
        return self._each(seconds, lambda one: one.data, step)

    def between(self, step: int) -> float:
        """As :meth:`Fault.between`; without a fault nothing is done there."""
        return self._each(0.0, lambda one: one.between, step)

    def checkpoint(self, seconds: float, step: int) -> float:
        """As :meth:`Fault.checkpoint`."""
        return self._each(seconds, lambda one: one.checkpoint, step)

    def evaluation(self, step: int) -> float:
        """As :meth:`Fault.evaluation`."""
        return self._each(1.0, lambda one: one.evaluation, step)

    def logprob(self, seconds: float, step: int) -> float:
        """As :meth:`Fault.logprob`."""
        return self._each(seconds, lambda one: one.logprob, step)

    def update(self, seconds: float, step: int) -> float:
        """As :meth:`Fault.update`."""
        return self._each(seconds, lambda one: one.update, step)

    def sync(self, seconds: float) -> float:
        """As :meth:`Fault.sync`."""
        return self._each(seconds, lambda one: one.sync)

    def keep(self, rate: float) -> float:
        """As :meth:`Fault.keep`."""
        return self._each(rate, lambda one: one.keep)

    def _each(self, value: Any, method: Callable[[Fault], Callable[..., Any]], *where: int) -> Any:
        return reduce(lambda found, one: method(one)(found, *where), self.faults, value)
