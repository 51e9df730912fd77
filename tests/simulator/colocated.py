"""A run whose ranks each do everything, as TRL's: generate, verify, train, and meet at barriers.

Each rank has an engine, and the reward functions of its own rows run on it one after another. Ranks
meet where lengths are gathered (the end of the rollout), where rewards are, and in the update.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Protocol

from tests.simulator.books import Books, Seen, Wait
from tests.simulator.draws import SECOND, Group, Purpose
from tests.simulator.engines import Engine, Run
from tests.simulator.setting import Fate, Setting

__all__ = ["Calls", "Colocated", "RankStep", "Teller"]

Span = tuple[int, int]
"""Begin and end, ns."""


@dataclass
class Calls:
    """What one rank generated of a batch.

    Attributes:
        turns: Engine calls: begin, end, the trajectories in them and the turns they had before.
        tools: Tool calls: begin, end, and whose.
    """

    runs: list[Run]
    turns: list[tuple[int, int, list[Run]]] = field(default_factory=list)
    tools: list[tuple[int, int, Run]] = field(default_factory=list)


@dataclass
class RankStep:
    """One step of one rank, by name: begin and end of its stages, ns.

    Attributes:
        functions: Begin and end of each reward function.
        optimizer: When the gradients of all ranks were there.
    """

    calls: Calls
    spans: dict[str, Span] = field(default_factory=dict)
    functions: list[Span] = field(default_factory=list)
    optimizer: int = 0


class Teller(Protocol):
    """Gets what takes place, as it would be recorded."""

    def began(self, at: int) -> None: ...

    def step(self, step: int, ranks: list[RankStep]) -> None: ...

    def evaluated(self, step: int, ranks: list[RankStep]) -> None: ...

    def saved(self, step: int, spans: list[Span]) -> None: ...

    def ended(self, step: int, at: int, own_ns: int) -> None: ...


class Colocated:
    """Plays such a run."""

    def __init__(self, setting: Setting, tell: Teller | None = None, seen: Seen | None = None):
        self.setting = setting
        self.scenario = scenario = setting.scenario
        self.costs = costs = scenario.costs
        self.tell = tell
        begin = 10 * SECOND
        self.books = Books(scenario.ranks, begin, seen)
        self.fate = Fate(self.books, begin, begin)
        self.engines = [
            Engine(rank, range(rank, rank + 1), costs.slots, costs.rate, costs.half)
            for rank in range(scenario.ranks)
        ]
        self.threads = setting.effects.reward_workers(scenario.reward_workers)

    def play(self) -> Fate:
        """The whole run."""
        setting, scenario, fate = self.setting, self.scenario, self.fate
        if self.tell:
            self.tell.began(fate.begin)
        for step in range(1, scenario.steps + 1):
            self._step(step)
            if scenario.eval_every and step % scenario.eval_every == 0:
                self._evaluate(step)
            if scenario.checkpoint_every and step % scenario.checkpoint_every == 0:
                seconds = setting.effects.checkpoint(self.costs.checkpoint_s, step)
                spans = self._together(step, 9, seconds, "checkpoint")
                if self.tell:
                    self.tell.saved(step, spans)
            if step < scenario.steps:
                self._between(step)
        fate.end = max(self.books.at)
        if self.tell:
            own_ns = scenario.steps * round(self.costs.probe_s * SECOND)
            self.tell.ended(scenario.steps, fate.end, own_ns)
        return fate

    def _step(self, step: int) -> None:
        books, costs, effects = self.books, self.costs, self.setting.effects
        groups = [self._group(step, number) for number in range(self.scenario.prompts)]
        shards = self._shards(groups)
        # Every rank has its place in time; barriers make them one.
        fetch = effects.data(costs.data_s, step)
        data = self._each(step, 0, [fetch] * len(shards), "overhead.data")
        begins = list(books.at)
        self._bubble(step, 0)
        synced = self._each(step, 1, [self.setting.sync_s(step)] * len(shards), "work.weight_sync")
        calls = [self._generate(step, rank, runs) for rank, runs in enumerate(shards)]
        self._meet_rollout(step, calls)
        found = [RankStep(one) for one in calls]
        rolled = list(books.at)
        self._bubble(step, 1)
        tokens = [
            sum(run.plan.prompt_tokens + run.plan.response_tokens for run in runs)
            for runs in shards
        ]
        logprob = [effects.logprob(costs.fixed_s + costs.logprob_s * one, step) for one in tokens]
        old = self._each(step, 2, logprob, "work.old_logprob")
        ref = self._each(step, 3, logprob, "work.ref_logprob")
        rewarding = list(books.at)
        for rank, one in enumerate(found):
            one.functions = self._reward(step, rank, shards[rank])
        self._meet_reward(step, [one.functions for one in found], ref)
        rewarded = list(books.at)
        advantage = [costs.advantage_s] * len(shards)
        counted = self._each(step, 4, advantage, "overhead.advantage")
        self._bubble(step, 2)
        update = [effects.update(costs.fixed_s + costs.update_s * one, step) for one in tokens]
        updated, gathered = self._update(step, update)
        self._discard(step, shards)
        for rank in range(len(shards)):
            until = books.at[rank] + round(costs.probe_s * SECOND)
            books.charge(rank, step, "overhead.probe", until)
        self._bubble(step, 3)
        for rank, one in enumerate(found):
            one.spans = {
                "data": data[rank],
                "weight_sync": synced[rank],
                "rollout": (synced[rank][0], rolled[rank]),
                "old_logprob": old[rank],
                "ref_logprob": ref[rank],
                "reward": (rewarding[rank], rewarded[rank]),
                "advantage": counted[rank],
                "update_actor": updated[rank],
                "step": (begins[rank], books.at[rank]),
            }
            one.optimizer = gathered
        if self.tell:
            self.tell.step(step, found)

    def _group(self, step: int, number: int) -> Group:
        return self.setting.effects.group(step, self.setting.draws.group(step, number))

    def _shards(self, groups: list[Group]) -> list[list[Run]]:
        """Trajectories of each rank, one rank's after another's."""
        rows = [(group, sample) for group in groups for sample in range(len(group.plans))]
        part = len(rows) // len(self.engines)
        return [
            [
                Run(group, sample, rank * part + row, engine)
                for row, (group, sample) in enumerate(rows[rank * part : (rank + 1) * part])
            ]
            for rank, engine in enumerate(self.engines)
        ]

    def _generate(self, step: int, rank: int, runs: list[Run], into: str = "") -> Calls:
        """All turns of a rank: a call of the engine, then tools one after another, and again."""
        books, engine, calls = self.books, self.engines[rank], Calls(runs)
        now = books.at[rank]
        effects = self.setting.effects
        engine.slowdown = effects.decode(engine.gpus, step)
        if into:
            engine.slowdown *= effects.evaluation(step)
        host = SECOND * effects.host(engine.gpus, step)
        engine.tokens = engine.slot_ns = 0
        engine.busy.clear()
        active, begin = runs, now
        while active:
            engine.advance(now)
            first = now
            waiting = [run for run in active if len(run.turns) + 1 < len(run.plan.turns)]
            for run in active:
                run.start = run.start or now
                engine.submit(now, run)
            now = engine.drain(now)
            books.charge(rank, step, into or "work.rollout", now)
            calls.turns.append((first, now, active))
            for run in waiting:
                start, now = now, now + round(run.plan.turns[len(run.turns) - 1][1] * host)
                run.tools.append((start, now))
                calls.tools.append((start, now, run))
            called = books.charge(rank, step, into or "wait.rollout", now)
            if waiting and not into:
                self._called(step, rank, called, waiting)
            active = waiting
        if not into:
            self.fate.slot_ns += engine.slot_ns
            self.fate.capacity_ns += engine.slots * (now - begin)
            self.fate.tokens += engine.tokens
            self.fate.trajectories += len(runs)
        return calls

    def _called(self, step: int, rank: int, ns: int, runs: list[Run]) -> None:
        """The engine of a rank stood still while tools were called."""
        run = max(runs, key=lambda one: _length(one.tools[-1]))
        name = self.scenario.tools[run.group.source]
        self.books.waited(
            Wait(
                step, "rollout", ns, "tool", rank=rank, engine=rank, group=run.group.number,
                sample=run.sample, turn=len(run.tools) - 1, name=name,
            )
        )  # fmt: skip

    def _meet_rollout(self, step: int, calls: list[Calls]) -> None:
        """Lengths are gathered: everybody waits for the rank that generated longest."""
        books, last = self.books, max(self.books.at)
        rank = books.at.index(last)
        waited = sum(books.charge(one, step, "wait.rollout", last) for one in range(books.gpus))
        run = max(calls[rank].runs, key=lambda run: run.turns[-1][1])
        tool_ns = sum(end - start for start, end, _ in calls[rank].tools)
        turn_ns = sum(end - start for start, end, _ in calls[rank].turns)
        kind = "tool" if tool_ns > turn_ns else "turn"
        name = self.scenario.tools[run.group.source] if kind == "tool" else None
        if kind == "tool":
            run = max(calls[rank].tools, key=lambda tool: tool[1] - tool[0])[2]
            name = self.scenario.tools[run.group.source]
        waits = Wait(
            step, "rollout", waited, kind, rank=rank, engine=rank, group=run.group.number,
            sample=run.sample, name=name,
        )  # fmt: skip
        books.waited(waits)

    def _reward(self, step: int, rank: int, runs: list[Run]) -> list[Span]:
        """Reward functions of a rank, one after another, each with threads of its own."""
        spans = list[Span]()
        host = SECOND * self.setting.effects.host((rank,), step)
        for source in range(len(self.scenario.sources)):
            begin = self.books.at[rank]
            threads = [begin] * self.threads
            for run in runs:
                if run.group.source == source:
                    start = heapq.heappop(threads)
                    end = start + round(run.plan.reward_s * host)
                    heapq.heappush(threads, end)
                    run.verified = (start, end)
            end = max(threads) + SECOND // 1_000
            self.books.charge(rank, step, "wait.reward", end)
            spans.append((begin, end))
        return spans

    def _meet_reward(self, step: int, functions: list[list[Span]], before: list[Span]) -> None:
        """Rewards are gathered: who is last was late already, or verified longer than others."""
        books, last = self.books, max(self.books.at)
        rank = books.at.index(last)
        lengths = [sum(end - begin for begin, end in spans) for spans in functions]
        longest = max(range(len(functions[rank])), key=lambda at: _length(functions[rank][at]))
        name = self.scenario.functions[longest]
        books.waited(Wait(step, "reward", sum(lengths), "reward", rank=rank, name=name))
        waited = sum(books.charge(one, step, "wait.reward", last) for one in range(books.gpus))
        ends = [end for _, end in before]
        if ends[rank] - min(ends) > lengths[rank] - min(lengths):
            books.waited(Wait(step, "reward", waited, "ref_logprob", rank=rank))
        else:
            books.waited(Wait(step, "reward", waited, "reward", rank=rank, name=name))

    def _update(self, step: int, seconds: list[float]) -> tuple[list[Span], int]:
        """Gradients are reduced inside the update: all ranks end it together."""
        books, begins = self.books, list(self.books.at)
        work = self.setting.work_ns(step, 5, seconds)
        ends = [begin + length for begin, length in zip(begins, work, strict=True)]
        gathered = max(ends)
        waited = 0
        for rank, end in enumerate(ends):
            books.charge(rank, step, "work.update_actor", end)
            waited += books.charge(rank, step, "wait.update", gathered, held=True)
            books.charge(rank, step, "work.update_actor", gathered + SECOND // 20)
        last = ends.index(gathered)
        books.waited(Wait(step, "update", waited, "update_actor", rank=last))
        return [(begin, gathered + SECOND // 20) for begin in begins], gathered

    def _discard(self, step: int, shards: list[list[Run]]) -> None:
        if not self.scenario.mask_truncated:
            return
        for runs in shards:
            cut = sum(run.plan.generated for run in runs if run.plan.cut)
            if cut:
                tokens = sum(run.plan.generated for run in runs)
                engine = runs[0].engine
                busy = sum(end - begin for begin, end in engine.busy)
                self.books.move(step, "work.rollout", "discarded.truncated", busy * cut // tokens)

    def _evaluate(self, step: int) -> None:
        begins = list(self.books.at)
        draws = self.setting.draws
        groups = [
            draws.group(step, number, Purpose.EVAL_GROUP) for number in range(self.scenario.prompts)
        ]
        shards = self._shards(groups)
        found = [
            RankStep(self._generate(step, rank, runs, "eval")) for rank, runs in enumerate(shards)
        ]
        self.books.charge_all(step, "eval", max(self.books.at))
        rolled = max(self.books.at)
        effects = self.setting.effects
        slowdown = effects.evaluation(step) * effects.host(range(self.books.gpus), step)
        self.books.charge_all(step, "eval", rolled + round(SECOND // 10 * slowdown))
        for rank, one in enumerate(found):
            one.spans = {
                "rollout": (begins[rank], rolled),
                "eval": (begins[rank], self.books.at[rank]),
            }
        if self.tell:
            self.tell.evaluated(step, found)

    def _each(self, step: int, place: int, seconds: list[float], category: str) -> list[Span]:
        """A stage that every rank does by itself."""
        found = list[Span]()
        for rank, length in enumerate(self.setting.work_ns(step, place + 20, seconds)):
            begin = self.books.at[rank]
            self.books.charge(rank, step, category, begin + length)
            found.append((begin, begin + length))
        return found

    def _together(self, step: int, place: int, seconds: float, category: str) -> list[Span]:
        """The same, and then all wait for the last."""
        spans = self._each(step, place, [seconds] * self.books.gpus, category)
        last = max(self.books.at)
        self.books.charge_all(step, category, last)
        return [(begin, last) for begin, _ in spans]

    def _bubble(self, step: int, place: int) -> None:
        length = self.setting.draws.gap_ns(step, place + 50, self.costs.gap_s)
        for rank in range(self.books.gpus):
            more = round(length * self.setting.effects.host((rank,), step))
            self.books.charge(rank, step, "bubble", self.books.at[rank] + more)

    def _between(self, step: int) -> None:
        """What is done after a step, and not recorded."""
        length = round(SECOND * self.setting.effects.between(step))
        for rank in range(self.books.gpus):
            self.books.charge(rank, step, "bubble", self.books.at[rank] + length)


def _length(span: Span) -> int:
    return span[1] - span[0]
