"""A run with one controller, as verl's: it calls all ranks for each stage and waits for the last.

Rollout is colocated: each engine has ``tp`` of the GPUs that train. Trajectories go their own way
through turns, tools and verification, and the controller waits for the last of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from tests.simulator.books import Books, Seen, Wait
from tests.simulator.draws import SECOND, Group, Purpose
from tests.simulator.engines import Engine, Pool, Rollout, Run
from tests.simulator.setting import Fate, Setting, deal

__all__ = ["Call", "Controlled", "Part", "Round", "Teller"]


@dataclass(frozen=True)
class Round:
    """One generation of a batch.

    Attributes:
        begin, end: Of the stage, ns.
        told: When the last trajectory was verified, ns.
        runs: By row.
    busy: Time that each engine decoded, ns.
        busy: Time that each engine decoded, ns.
    """

    mode: str
    ordinal: int
    begin: int
    end: int
    told: int
    groups: list[Group]
    runs: list[Run]
    busy: list[int]


@dataclass(frozen=True)
class Call:
    """One stage that all ranks take part in: begin and end by rank, ns.

    Attributes:
        together: They end together, by a collective in the stage.
    """

    stage: str
    method: str
    begin: int
    end: int
    starts: list[int]
    ends: list[int]
    together: bool = False


Part = Round | Call | tuple[str, int, int]
"""A part of a step; a stage of the controller alone has a name, a begin and an end, ns."""


class Teller(Protocol):
    """Gets what takes place, as it would be recorded."""

    def began(self, at: int) -> None: ...

    def step(
        self,
        step: int,
        begin: int,
        end: int,
        parts: list[Part],
        used: list[str] | None,
        kept: list[str] | None,
    ) -> None: ...

    def evaluated(self, step: int, begin: int, end: int, batch: Round) -> None: ...

    def saved(self, step: int, call: Call) -> None: ...

    def ended(self, step: int, at: int, own_ns: int) -> None: ...


_METHODS = {
    "old_logprob": "compute_log_prob",
    "ref_logprob": "compute_ref_log_prob",
    "update_actor": "update_actor",
    "weight_sync": "update_weights",
    "checkpoint": "save_checkpoint",
}
_PLACES = {stage: place for place, stage in enumerate(_METHODS)}
_ROUNDS = 12
"""Most generations of a step; then it trains on what there is."""


class Controlled:
    """Plays such a run."""

    def __init__(self, setting: Setting, tell: Teller | None = None, seen: Seen | None = None):
        self.setting = setting
        self.scenario = scenario = setting.scenario
        self.costs = costs = scenario.costs
        self.tell = tell
        self.now = 10 * SECOND
        self.books = Books(scenario.ranks, self.now, seen)
        self.fate = Fate(self.books, self.now, self.now)
        self.engines = [
            Engine(number, range(at, at + scenario.tp), costs.slots, costs.rate, costs.half)
            for number, at in enumerate(range(0, scenario.ranks, scenario.tp))
        ]
        count = setting.effects.reward_workers(scenario.reward_workers)
        tools = [Pool(scenario.tool_workers, self._looping) for _ in scenario.sources]
        rewards = [Pool(count, self._verifying) for _ in scenario.sources]
        self.rollout = Rollout(self.engines, tools, rewards)
        self.step = 0
        self._rows = 0
        self._gaps = 0

    def play(self) -> Fate:
        """The whole run."""
        scenario, fate, effects = self.scenario, self.fate, self.setting.effects
        if self.tell:
            self.tell.began(self.now)
        for step in range(1, scenario.steps + 1):
            self.step = step
            self._gaps = 0
            self._step(step)
            if scenario.eval_every and step % scenario.eval_every == 0:
                self._evaluate(step)
            if scenario.checkpoint_every and step % scenario.checkpoint_every == 0:
                each = [effects.checkpoint(self.costs.checkpoint_s, step)] * scenario.ranks
                call = self._call(step, "checkpoint", each, "checkpoint")
                if self.tell:
                    self.tell.saved(step, call)
            if step < scenario.steps:
                between = round(SECOND * effects.between(step) * self._host())
                self._until(step, "bubble", self.now + between)
        fate.end = self.now
        if self.tell:
            own_ns = scenario.steps * round(self.costs.probe_s * SECOND)
            self.tell.ended(scenario.steps, self.now, own_ns)
        return fate

    def _step(self, step: int) -> None:
        begin, scenario, effects = self.now, self.scenario, self.setting.effects
        parts = list[Part]()
        rounds, used, kept = self._generate_enough(step)
        parts += rounds
        self._gap(step)
        prompts = {group.prompt for group in used}
        trained = [run for one in rounds for run in one.runs if run.group.prompt in prompts]
        self._discard(step, rounds, used, kept)
        parts.append(self._own(step, "reward", 0.01, "wait.reward"))
        tokens = deal(trained, scenario.ranks)
        costs = self.costs
        for stage in ("old_logprob", "ref_logprob"):
            self._gap(step)
            each = [effects.logprob(costs.fixed_s + costs.logprob_s * one, step) for one in tokens]
            parts.append(self._call(step, stage, each, "update"))
        self._gap(step)
        parts.append(self._own(step, "advantage", costs.advantage_s, "overhead.advantage"))
        self._gap(step)
        update = [effects.update(costs.fixed_s + costs.update_s * one, step) for one in tokens]
        parts.append(self._call(step, "update_actor", update, "update", together=True))
        self._gap(step)
        sync = [self.setting.sync_s(step)] * scenario.ranks
        parts.append(self._call(step, "weight_sync", sync, "refit"))
        self._until(step, "overhead.probe", self.now + round(costs.probe_s * SECOND))
        self._gap(step)
        if self.tell:
            filtered = scenario.keep < 1
            self.tell.step(
                step, begin, self.now, parts,
                [group.prompt for group in used] if filtered else None,
                [group.prompt for group in kept] if filtered else None,
            )  # fmt: skip

    def _generate_enough(self, step: int) -> tuple[list[Round], list[Group], list[Group]]:
        """Generations until enough groups passed the filter: those trained on, and those kept."""
        scenario, effects = self.scenario, self.setting.effects
        rate = effects.keep(scenario.keep)
        rounds, kept, number = list[Round](), list[Group](), 0
        while len(kept) < scenario.prompts and len(rounds) < _ROUNDS:
            self._gap(step)
            groups = [
                effects.group(step, self.setting.draws.group(step, number + place))
                for place in range(scenario.generated or scenario.prompts)
            ]
            number += len(groups)
            rounds.append(self._generate(step, groups, "train", len(rounds)))
            kept += [group for group in groups if group.keep < rate]
        if not kept:
            kept = rounds[-1].groups[:1]
        return rounds, kept[: scenario.prompts], kept

    def _generate(self, step: int, groups: list[Group], mode: str, ordinal: int) -> Round:
        begin, effects = self.now, self.setting.effects
        dispatch = self.costs.dispatch_s * SECOND * self._host()
        first = begin + round(2 * dispatch)
        slowdown = effects.evaluation(step) if mode == "eval" else 1.0
        self._rows = sum(len(group.plans) for group in groups)
        engines, count = self.engines, len(self.engines)
        for engine in engines:
            engine.busy.clear()
            engine.tokens = engine.slot_ns = 0
            engine.advance(first)
            engine.slowdown = effects.decode(engine.gpus, step) * slowdown
        runs = list[Run]()
        for group in groups:
            for sample in range(len(group.plans)):
                runs.append(Run(group, sample, len(runs), engines[len(runs) % count]))
        for run in runs:
            self.rollout.start(first, run)
        left = len(runs)
        while left:
            left -= self.rollout.play() is not None
        told = max(run.end for run in runs)
        end = told + round(dispatch)
        if mode == "eval":
            self._until(step, "eval", end)
        else:
            self._account(step, runs, first, told, end)
        busy = [sum(until - at for at, until in engine.busy) for engine in engines]
        return Round(mode, ordinal, begin, end, told, groups, runs, busy)

    def _account(self, step: int, runs: list[Run], first: int, told: int, end: int) -> None:
        charge, fate = self.books.charge, self.fate
        slowest = max(runs, key=lambda run: run.turns[-1][1])
        last = max(runs, key=lambda run: run.end)
        decoded = slowest.turns[-1][1]
        late = unrewarded = 0
        for engine in self.engines:
            for gpu in engine.gpus:
                charge(gpu, step, "overhead.dispatch", first)
                for begin, until in engine.busy:
                    late += charge(gpu, step, "wait.rollout", begin)
                    charge(gpu, step, "work.rollout", until)
                late += charge(gpu, step, "wait.rollout", decoded)
                unrewarded += charge(gpu, step, "wait.reward", told)
                charge(gpu, step, "overhead.dispatch", end)
            fate.slot_ns += engine.slot_ns
            fate.capacity_ns += engine.slots * (decoded - first)
        self.now = end
        fate.trajectories += len(runs)
        fate.tokens += sum(engine.tokens for engine in self.engines)
        self.books.waited(waited_for(step, "rollout", late, slowest, self.scenario.tools))
        self.books.waited(waited_for(step, "reward", unrewarded, last, self.scenario.functions))

    def _discard(
        self, step: int, rounds: list[Round], used: list[Group], kept: list[Group]
    ) -> None:
        """Call rollout work of each engine something else, by the share of its tokens."""
        passed, trained = ({group.prompt for group in part} for part in (kept, used))
        for one in rounds:
            tokens = Counter[int]()
            discarded = Counter[tuple[int, str]]()
            for run in one.runs:
                tokens[run.engine.number] += run.plan.generated
                why = self._why(run, passed, trained)
                if why:
                    discarded[run.engine.number, why] += run.plan.generated
            for (engine, why), share in discarded.items():
                ns = one.busy[engine] * share // tokens[engine] * self.scenario.tp
                self.books.move(step, "work.rollout", f"discarded.{why}", ns)

    def _why(self, run: Run, passed: set[str], trained: set[str]) -> str:
        if run.group.prompt not in passed:
            return "filtered"
        if run.group.prompt not in trained:
            return "surplus"
        return "truncated" if run.plan.cut and self.scenario.mask_truncated else ""

    def _call(
        self, step: int, stage: str, seconds: list[float], barrier: str, *, together: bool = False
    ) -> Call:
        """One call of all ranks, which the controller waits for."""
        books, begin = self.books, self.now
        dispatch = round(self.costs.dispatch_s * SECOND * self._host())
        work = self.setting.work_ns(step, _PLACES[stage], seconds)
        starts = [begin + dispatch] * len(work)
        ends = [start + length for start, length in zip(starts, work, strict=True)]
        last = max(ends)
        self.now = end = last + dispatch
        waited = 0
        if barrier == "checkpoint":
            books.charge_all(step, "checkpoint", end)
        else:
            for rank, (start, done) in enumerate(zip(starts, ends, strict=True)):
                books.charge(rank, step, "overhead.dispatch", start)
                books.charge(rank, step, f"work.{stage}", done)
                waited += books.charge(rank, step, f"wait.{barrier}", last, held=together)
                books.charge(rank, step, "overhead.dispatch", end)
            books.waited(Wait(step, barrier, waited, stage, rank=ends.index(last)))
        if together:
            ends = [last] * len(ends)
        return Call(stage, _METHODS[stage], begin, end, starts, ends, together)

    def _own(self, step: int, stage: str, seconds: float, category: str) -> tuple[str, int, int]:
        """A stage of the controller alone."""
        begin = self.now
        self._until(step, category, begin + round(seconds * SECOND * self._host()))
        if category == "wait.reward":
            waited = (self.now - begin) * self.books.gpus
            self.books.waited(Wait(step, "reward", waited, stage))
        return stage, begin, self.now

    def _evaluate(self, step: int) -> None:
        begin = self.now
        groups = [
            self.setting.draws.group(step, number, Purpose.EVAL_GROUP)
            for number in range(self.scenario.prompts)
        ]
        batch = self._generate(step, groups, "eval", 0)
        slowdown = self.setting.effects.evaluation(step) * self._host()
        self._until(step, "eval", self.now + round(SECOND // 20 * slowdown))
        if self.tell:
            self.tell.evaluated(step, begin, self.now, batch)

    def _gap(self, step: int) -> None:
        self._gaps += 1
        length = self.setting.draws.gap_ns(step, min(self._gaps, 40), self.costs.gap_s)
        self._until(step, "bubble", self.now + round(length * self._host()))

    def _host(self, node: int = 0) -> float:
        """Slowdown of a node, the controller's if nothing is said."""
        first = node * self.scenario.gpus_per_node
        return self.setting.effects.host((first,), self.step)

    def _looping(self, run: Run, worker: int) -> float:
        """That of the agent loop worker that calls a tool for a trajectory."""
        loop = run.row // self.scenario.per_worker(self._rows)
        return self._host(loop % self.scenario.nodes)

    def _verifying(self, run: Run, worker: int) -> float:
        """That of the reward worker that verifies a trajectory."""
        return self._host(worker % self.scenario.rewarders % self.scenario.nodes)

    def _until(self, step: int, category: str, until: int) -> None:
        self.books.charge_all(step, category, until)
        self.now = until


def waited_for(step: int, barrier: str, gpu_ns: int, run: Run, tools: list[str]) -> Wait:
    """A barrier that a trajectory came to last, and what took it longest."""
    tool = max(run.tools, key=lambda one: one[1] - one[0], default=None)
    turn = max(range(len(run.turns)), key=lambda at: run.turns[at][1] - run.turns[at][0])
    name, kind = None, "turn"
    if barrier == "reward":
        kind, name = "reward", tools[run.group.source]
    elif tool and sum(b - a for a, b in run.tools) > sum(one[1] - one[0] for one in run.turns):
        kind, name, turn = "tool", tools[run.group.source], run.tools.index(tool)
    return Wait(
        step, barrier, gpu_ns, kind, engine=run.engine.number, group=run.group.number,
        sample=run.sample, turn=turn, name=name,
    )  # fmt: skip
