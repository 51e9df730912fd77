"""A run that generates beside the training: a rollouter fills a queue, a trainer takes from it.

The rollouter has GPUs of its own, with one engine. It begins the next group while fewer than
``inflight`` are on their way and the queue has room. The trainer takes what it needs for a step,
throws away what is too old, and moves its weights to the engine, which stands still meanwhile.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from tests.simulator.books import Books, Seen, Wait
from tests.simulator.draws import SECOND, Group
from tests.simulator.engines import Engine, Pool, Rollout, Run
from tests.simulator.setting import Fate, Setting, deal

__all__ = ["Asynchronous", "Made", "Taken", "Teller"]

Span = tuple[int, int]

_IDLE = {"wait.update": "update_actor", "wait.rollout": "tool", "wait.reward": "reward"}
"""What GPUs of the rollouter that decode nothing wait for, and what that is."""


@dataclass
class Made:
    """A group on its way.

    Attributes:
        version: Weights that its trajectories began with.
        scored: Begin and end of its verification, ns; it waits for it from the end of its last
            trajectory on.
        left: Trajectories that have not ended.
    """

    number: int
    group: Group
    version: int
    runs: list[Run] = field(default_factory=list)
    scored: Span = (0, 0)
    left: int = 0


@dataclass
class Taken:
    """One step of the trainer: begin and end of what each rank did, ns."""

    groups: list[Made]
    version: int
    data: Span
    updates: list[Span]
    optimizer: int
    syncs: Span
    step: Span
    saved: Span | None = None


class Teller(Protocol):
    """Gets what takes place, as it would be recorded."""

    def began(self, at: int) -> None: ...

    def lived(self, run: Run) -> None: ...

    def scored(self, made: Made) -> None: ...

    def step(self, step: int, taken: Taken) -> None: ...

    def left(self, runs: list[Run], serving: list[Run], at: int) -> None: ...

    def ended(self, step: int, at: int, own_ns: int) -> None: ...


class Asynchronous:
    """Plays such a run."""

    def __init__(self, setting: Setting, tell: Teller | None = None, seen: Seen | None = None):
        self.setting = setting
        self.scenario = scenario = setting.scenario
        self.costs = costs = scenario.costs
        self.tell = tell
        self.now = 10 * SECOND
        self.books = Books(scenario.gpus, self.now, seen)
        self.fate = Fate(self.books, self.now, self.now)
        self.trainers = range(scenario.ranks)
        many = scenario.rollout_gpus
        self.rollouters = range(scenario.ranks, scenario.gpus)
        self.engine = Engine(0, self.rollouters, costs.slots * many, costs.rate, costs.half * many)
        tools = [Pool(scenario.tool_workers, self._host) for _ in scenario.sources]
        self.rollout = Rollout([self.engine], tools, [])
        self.scorers = setting.effects.reward_workers(scenario.reward_workers)
        self.step = 1
        self.version = 0
        self._next = 0
        self._made: dict[int, Made] = {}
        self._generating = 0
        self._to_score: deque[Made] = deque()
        self._scoring: list[tuple[int, int]] = []
        self._queue: deque[Made] = deque()
        self._state = ("wait.rollout", self.now)
        self._discarded: list[tuple[int, str, int]] = []
        self._idle = Counter[str]()
        self._tokens = 0

    def play(self) -> Fate:
        """The whole run."""
        if self.tell:
            self.tell.began(self.now)
        self._turn_engine(paused=False)
        self._admit()
        training = self._train()
        wake = next(training)
        self._note()
        while True:
            times = [self.rollout.next_ns(), self._scoring[0][0] if self._scoring else None]
            times.append(wake if wake is not None or not self._queue else self.now)
            at = min(one for one in times if one is not None)
            self.now = at
            if times[0] == at:
                run = self.rollout.play()
                if run is not None:
                    self._done(run)
            elif times[1] == at:
                self._scored()
            else:
                try:
                    wake = next(training)
                except StopIteration:
                    break
            self._admit()
            self._note()
        return self._end()

    def _end(self) -> Fate:
        books, fate = self.books, self.fate
        self._note(force=True)
        fate.end = self.now
        held = books.totals()["work.rollout"]
        for step, why, tokens in self._discarded:
            ns = min(held * tokens // max(1, self._tokens), books.ns[step, "work.rollout"])
            books.move(step, "work.rollout", f"discarded.{why}", ns)
        fate.slot_ns = self.engine.slot_ns
        fate.capacity_ns = self.engine.slots * (fate.end - fate.begin)
        if self.tell:
            own_ns = self.scenario.steps * round(self.costs.probe_s * SECOND)
            runs = [run for made in self._made.values() for run in made.runs if not run.end]
            self.tell.left(runs, self.engine.serving, fate.end)
            self.tell.ended(self.scenario.steps, fate.end, own_ns)
        return fate

    # ---------------------------------------------------------------- rollouter

    def _admit(self) -> None:
        """Begin groups while there is room for them."""
        scenario = self.scenario
        while self._generating < scenario.inflight and not self._full():
            group = self.setting.draws.group(0, self._next)
            group = self.setting.effects.group(self.step, group)
            made = Made(self._next, group, self.version, left=len(group.plans))
            made.runs = [Run(group, place, place, self.engine) for place in range(made.left)]
            self._made[self._next] = made
            self._next += 1
            self._generating += 1
            for run in made.runs:
                run.version = self.version
                self.rollout.start(self.now, run)

    def _full(self) -> bool:
        return len(self._queue) >= self.scenario.queue

    def _done(self, run: Run) -> None:
        """A trajectory ended; its group is scored when all have."""
        if self.tell:
            self.tell.lived(run)
        self.fate.trajectories += 1
        self.fate.tokens += run.plan.generated
        made = self._made[run.group.number]
        made.left -= 1
        if not made.left:
            self._generating -= 1
            self._to_score.append(made)
            self._score()

    def _score(self) -> None:
        while self._to_score and len(self._scoring) < self.scorers:
            made = self._to_score.popleft()
            seconds = sum(plan.reward_s for plan in made.group.plans)
            seconds += 0.001 * len(self.scenario.sources)
            length = round(SECOND * seconds * self._host())
            made.scored = (self.now, self.now + length)
            heapq.heappush(self._scoring, (self.now + length, made.number))

    def _host(self, *_: object) -> float:
        """Slowdown of the rollouter, which is on the node of the first rank."""
        return self.setting.effects.host((0,), self.step)

    def _scored(self) -> None:
        _, number = heapq.heappop(self._scoring)
        made = self._made.pop(number)
        self._queue.append(made)
        self._tokens += sum(run.plan.generated for run in made.runs)
        if self.tell:
            self.tell.scored(made)
        self._score()

    def _category(self) -> str:
        """What the GPUs of the rollouter do now."""
        if self.engine.paused:
            return "work.weight_sync"
        if self.engine.active:
            return "work.rollout"
        if self._full():
            return "wait.update"
        return "wait.rollout" if self._generating else "wait.reward"

    def _note(self, *, force: bool = False) -> None:
        category, _ = self._state
        new = self._category()
        if new == category and not force:
            return
        for gpu in self.rollouters:
            length = self.books.charge(gpu, self.step, category, self.now)
            if category in _IDLE:
                self._idle[category] += length
        self._state = (new, self.now)

    def _turn_engine(self, *, paused: bool) -> None:
        slowdown = self.setting.effects.decode(self.rollouters, self.step)
        self.rollout.change(self.now, self.engine, paused=paused, slowdown=slowdown)

    # ---------------------------------------------------------------- trainer

    def _train(self) -> Iterator[int | None]:
        """Gives the time until which it is at something, or None while it waits for the queue."""
        scenario, costs, effects = self.scenario, self.costs, self.setting.effects
        for step in range(1, scenario.steps + 1):
            self.step = step
            self._turn_engine(paused=False)
            begin = self.now
            groups = list[Made]()
            while len(groups) < scenario.prompts:
                while self._queue and len(groups) < scenario.prompts:
                    made = self._queue.popleft()
                    if made.version < self.version - scenario.staleness:
                        self._discard(step, "stale", made.runs)
                    else:
                        groups.append(made)
                        if scenario.mask_truncated:
                            cut = [run for run in made.runs if run.plan.cut]
                            self._discard(step, "truncated", cut)
                if len(groups) < scenario.prompts:
                    yield None
            self._starved(step, groups[-1])
            data = begin, self.now + self._own_ns(step, effects.data(costs.data_s, step))
            self._all(step, "overhead.data", data[1])
            first = data[1] + self._gap(step, 0)
            self._all(step, "bubble", first)
            updates, gathered, done = self._update(step, groups, first)
            yield done
            self._turn_engine(paused=True)
            self._note()
            synced = done, done + self._own_ns(step, self.setting.sync_s(step))
            self._all(step, "work.weight_sync", synced[1])
            yield synced[1]
            self.version += 1
            self._turn_engine(paused=False)
            self._note()
            probed = synced[1] + round(costs.probe_s * SECOND)
            self._all(step, "overhead.probe", probed)
            end = probed + self._gap(step, 1)
            self._all(step, "bubble", end)
            saved = None
            if scenario.checkpoint_every and step % scenario.checkpoint_every == 0:
                seconds = effects.checkpoint(costs.checkpoint_s, step)
                saved = end, end + self._own_ns(step, seconds)
                self._all(step, "checkpoint", saved[1])
            if self.tell:
                taken = Taken(
                    groups, self.version, data, updates, gathered, synced, (data[1], end), saved
                )
                self.tell.step(step, taken)
            yield saved[1] if saved else end
            between = self._own_ns(step, effects.between(step))
            if between and step < scenario.steps:
                self._all(step, "bubble", self.now + between)
                yield self.now + between
            self._note(force=True)
            for category, kind in _IDLE.items():
                barrier = category.removeprefix("wait.")
                self.books.waited(Wait(step, barrier, self._idle[category], kind))
            self._idle.clear()

    def _starved(self, step: int, last: Made) -> None:
        """The trainer waited until now for the queue."""
        waited = sum(
            self.books.charge(rank, step, "wait.rollout", self.now) for rank in self.trainers
        )
        run = max(last.runs, key=lambda one: one.end)
        generated, verified = run.end - run.start, last.scored[1] - run.end
        tool_ns = sum(end - begin for begin, end in run.tools)
        kind = "tool" if 2 * tool_ns > generated else "turn"
        name = self.scenario.tools[last.group.source] if kind == "tool" else None
        if verified > generated:
            kind, name = "reward", self.scenario.functions[last.group.source]
        self.books.waited(
            Wait(
                step,
                "rollout",
                waited,
                kind,
                engine=0,
                group=last.number,
                sample=run.sample,
                name=name,
            )
        )

    def _update(self, step: int, groups: list[Made], first: int) -> tuple[list[Span], int, int]:
        """Begin and end of it by rank, when gradients were there, and the end of all."""
        costs, books = self.costs, self.books
        tokens = deal((run for made in groups for run in made.runs), len(self.trainers))
        seconds = [
            self.setting.effects.update(costs.fixed_s + costs.update_s * one, step)
            for one in tokens
        ]
        ends = [first + length for length in self.setting.work_ns(step, 5, seconds)]
        gathered, waited = max(ends), 0
        done = gathered + SECOND // 20
        for rank, end in enumerate(ends):
            books.charge(rank, step, "work.update_actor", end)
            waited += books.charge(rank, step, "wait.update", gathered, held=True)
            books.charge(rank, step, "work.update_actor", done)
        last = ends.index(gathered)
        books.waited(Wait(step, "update", waited, "update_actor", rank=last))
        return [(first, done)] * len(ends), gathered, done

    def _discard(self, step: int, why: str, runs: list[Run]) -> None:
        self._discarded.append((step, why, sum(run.plan.generated for run in runs)))

    def _gap(self, step: int, place: int) -> int:
        slowdown = self.setting.effects.host(self.trainers, step)
        return round(slowdown * self.setting.draws.gap_ns(step, place, self.costs.gap_s))

    def _own_ns(self, step: int, seconds: float) -> int:
        """What all trainers take for something that they end together, on their hosts."""
        return round(SECOND * seconds * self.setting.effects.host(self.trainers, step))

    def _all(self, step: int, category: str, until: int) -> None:
        for rank in self.trainers:
            self.books.charge(rank, step, category, until)
