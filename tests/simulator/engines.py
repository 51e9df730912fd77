"""Rollout as it takes place: engines with decode slots, pools with queues, trajectories.

A discrete-event simulation in whole nanoseconds. All sequences in the slots of an engine advance
at one rate, which falls with their number; what one of them still has to generate is told by how
many tokens each has generated since the beginning, so that an event costs a push and a pop.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence

from tests.simulator.draws import SECOND, Group, Plan

__all__ = ["Engine", "Pool", "Rollout", "Run"]

PREFILL = 1 / 50
"""Tokens of decoding that one token of a prompt costs."""


class Run:
    """One trajectory while it lives, and what it did; times in ns.

    Attributes:
        row: Its place in the batch.
        turns: Begin, end, tokens sent and tokens generated of each.
        tools: Begin and end of each tool call, queueing included.
        verified: Begin and end of its verification, queueing included.
        served: Worker of the reward function, begin and end there.
    """

    __slots__ = (
        "end", "engine", "group", "plan", "row", "sample", "sent", "served", "start", "tools",
        "turn_start", "turns", "verified", "version",
    )  # fmt: skip

    def __init__(self, group: Group, sample: int, row: int, engine: Engine) -> None:
        self.group = group
        self.sample = sample
        self.plan: Plan = group.plans[sample]
        self.row = row
        self.engine = engine
        self.sent = self.plan.prompt_tokens
        self.start = self.end = self.turn_start = 0
        self.turns: list[tuple[int, int, int, int]] = []
        self.tools: list[tuple[int, int]] = []
        self.verified = (0, 0)
        self.served = (0, 0, 0)
        self.version = 0


class Engine:
    """A rollout engine on ``gpus``.

    Attributes:
        slots: Sequences that decode at the same time; the others wait in its queue.
        rate: Tokens per second of one sequence alone.
        half: Sequences at which each has half of that rate.
        slowdown: Factor by which everything takes longer.
        busy: Begin and end of every interval with a sequence in a slot.
        slot_ns: Integral of the number of sequences over time.
        tokens: Generated so far.
    """

    def __init__(self, number: int, gpus: range, slots: int, rate: float, half: float) -> None:
        self.number = number
        self.gpus = gpus
        self.slots = slots
        self.rate = rate
        self.half = half
        self.slowdown = 1.0
        self.paused = False
        self.busy: list[tuple[int, int]] = []
        self.slot_ns = 0
        self.tokens = 0
        self.stamp = 0
        self._active: list[tuple[float, int, Run]] = []
        self._waiting: deque[Run] = deque()
        self._each = 0.0
        self._at = 0
        self._since = 0
        self._count = 0

    @property
    def active(self) -> int:
        """Sequences in its slots."""
        return len(self._active)

    @property
    def serving(self) -> list[Run]:
        """Trajectories in a turn, waiting for a slot or in one."""
        return [run for _, _, run in sorted(self._active, key=lambda one: one[:2])] + [
            *self._waiting
        ]

    @property
    def since(self) -> int:
        """When the interval began in which it is busy."""
        return self._since

    def drain(self, now: int) -> int:
        """Decode until every sequence is done, of trajectories without anybody else; when."""
        at = self.next_ns()
        while at is not None:
            now = at
            run = self.finish(now)
            tokens, _, told = run.plan.turns[len(run.turns)]
            run.turns.append((run.turn_start, now, run.sent, tokens))
            run.sent += tokens + told
            run.end = now
            at = self.next_ns()
        return now

    def pace(self) -> float:
        """Tokens per ns of each sequence."""
        if self.paused:
            return 0.0
        return self.rate / (1 + len(self._active) / self.half) / self.slowdown / SECOND

    def advance(self, now: int) -> None:
        """Decode until then."""
        passed, self._at = now - self._at, now
        if self._active:
            self._each += passed * self.pace()
            self.slot_ns += passed * len(self._active)

    def submit(self, now: int, run: Run) -> None:
        """Take the next turn of a trajectory."""
        self.advance(now)
        run.turn_start = now
        if len(self._active) < self.slots:
            self._begin(run)
        else:
            self._waiting.append(run)

    def next_ns(self) -> int | None:
        """When the next sequence will be done if nothing else happens."""
        if not self._active or self.paused:
            return None
        left = self._active[0][0] - self._each
        return self._at + max(0, math.ceil(left / self.pace()))

    def finish(self, now: int) -> Run:
        """Take out the sequence that is done now."""
        self.advance(now)
        self._each, _, run = heapq.heappop(self._active)
        if self._waiting:
            self._begin(self._waiting.popleft())
        if not self._active:
            self._each = 0.0
            self.busy.append((self._since, now))
        return run

    def _begin(self, run: Run) -> None:
        if not self._active:
            self._since = self._at
        tokens = run.plan.turns[len(run.turns)][0]
        self.tokens += tokens
        self._count += 1
        cost = tokens + run.sent * PREFILL
        heapq.heappush(self._active, (self._each + cost, self._count, run))


class Pool:
    """Workers that serve one request each; the others wait, first come, first served.

    Attributes:
        slowdown: Factor by which a worker takes longer for a trajectory.
    """

    def __init__(self, workers: int, slowdown: Callable[[Run, int], float]) -> None:
        self.free = list(range(workers))
        self.slowdown = slowdown
        self.waiting: deque[tuple[Run, int]] = deque()


class Rollout:
    """Trajectories on engines and pools; whoever plays it asks for one event after another.

    Attributes:
        tools, rewards: A pool for each data source; without one for rewards, nothing is verified.
    """

    def __init__(
        self, engines: Sequence[Engine], tools: Sequence[Pool], rewards: Sequence[Pool]
    ) -> None:
        self.engines = engines
        self.tools = tools
        self.rewards = rewards
        self._events: list[tuple[int, int, Engine | None, Pool | None, Run | None, int, int]] = []
        self._count = 0

    def next_ns(self) -> int | None:
        """Time of the next event."""
        while self._events:
            at, _, engine, _, _, stamp, _ = self._events[0]
            if engine is None or engine.stamp == stamp:
                return at
            heapq.heappop(self._events)
        return None

    def start(self, now: int, run: Run) -> None:
        """Let a trajectory begin."""
        run.start = now
        self._turn(now, run)

    def change(self, now: int, engine: Engine, *, paused: bool, slowdown: float) -> None:
        """Stop an engine, let it go on, or change how fast it is."""
        engine.advance(now)
        engine.paused, engine.slowdown = paused, slowdown
        self._expect(engine)

    def play(self) -> Run | None:
        """Let the next event happen; the trajectory that ended by it."""
        if self.next_ns() is None:
            raise RuntimeError("nothing is left to happen")
        now, _, engine, pool, run, _, worker = heapq.heappop(self._events)
        if engine is not None:
            return self._turn_done(now, engine)
        assert pool is not None
        assert run is not None
        heapq.heappush(pool.free, worker)
        if pool.waiting:
            self._serve(now, pool, *pool.waiting.popleft())
        if len(run.turns) < len(run.plan.turns):
            run.tools.append((run.turns[-1][1], now))
            self._turn(now, run)
            return None
        run.verified = (run.turns[-1][1], now)
        run.end = now
        return run

    def _turn(self, now: int, run: Run) -> None:
        run.engine.submit(now, run)
        self._expect(run.engine)

    def _turn_done(self, now: int, engine: Engine) -> Run | None:
        run = engine.finish(now)
        self._expect(engine)
        tokens, tool_s, told = run.plan.turns[len(run.turns)]
        run.turns.append((run.turn_start, now, run.sent, tokens))
        run.sent += tokens + told
        if len(run.turns) < len(run.plan.turns):
            self._ask(now, self.tools[run.group.source], run, round(tool_s * SECOND))
            return None
        if self.rewards:
            pool = self.rewards[run.group.source]
            self._ask(now, pool, run, round(run.plan.reward_s * SECOND))
            return None
        run.end = now
        return run

    def _ask(self, now: int, pool: Pool, run: Run, length: int) -> None:
        if pool.free:
            self._serve(now, pool, run, length)
        else:
            pool.waiting.append((run, length))

    def _serve(self, now: int, pool: Pool, run: Run, length: int) -> None:
        worker = heapq.heappop(pool.free)
        length = round(length * pool.slowdown(run, worker))
        run.served = (worker, now, now + length)
        self._push(now + length, None, pool, run, 0, worker)

    def _expect(self, engine: Engine) -> None:
        engine.stamp += 1
        at = engine.next_ns()
        if at is not None:
            self._push(at, engine, None, None, engine.stamp, 0)

    def _push(
        self,
        at: int,
        engine: Engine | None,
        pool: Pool | None,
        run: Run | None,
        stamp: int,
        worker: int,
    ) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, engine, pool, run, stamp, worker))
