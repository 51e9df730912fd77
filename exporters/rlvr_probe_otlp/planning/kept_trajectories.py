"""Which trajectories become traces: the slow, the failed, and a few of the rest."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import compress
from operator import itemgetter

from rlvr_probe.exporter.timed_trajectories import FAILED, Candidate, lengths_in, shards_of
from rlvr_probe.model.trace import Step, Trace
from rlvr_probe_otlp.planning.identity import Context, Place, place_of

__all__ = ["Choice", "Limits"]

_ORDER = ("slowest_so_far", "slowest_of_step", "failed", "sampled")

_Row = tuple[str, int, int]
"""Mode, ordinal and row of a trajectory in its step."""

_Placed = tuple[Place, _Row]
"""A trajectory in its run."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a run goes out.

    Attributes:
        spans: Most spans of one trace.
        trajectories: Most trajectories of one step that become traces.
        share: Of the other trajectories, the share that is kept, 0..1.
        slowest: How many of the slowest trajectories of the run so far are kept.
        slowest_of_step: And how many of each step.
    """

    spans: int = 500
    trajectories: int = 100
    share: float = 0.01
    slowest: int = 100
    slowest_of_step: int = 8


@dataclass(slots=True)
class Choice:
    """What is kept of a run.

    Attributes:
        limits: How much.
        slowest: Places of the trajectories that were among its slowest up to the end of their step.
    """

    limits: Limits
    slowest: set[_Placed] = field(default_factory=set)
    _longest: list[tuple[int, _Placed]] = field(default_factory=list)

    @classmethod
    def of(cls, trace: Trace, limits: Limits) -> Choice:
        """That over all of ``trace``; without a trace, each step is on its own."""
        found = cls(limits)
        for attempt in trace.attempts:
            for step in attempt.steps:
                found.learn(step)
        return found

    def learn(self, step: Step) -> None:
        """Take note of how slow the trajectories of ``step`` are, the next one of the run.

        What comes later drives nothing out: the choice is the same while the run goes on.
        """
        step_place = place_of(step)
        placed = [
            (length, (step_place, row)) for length, row in _slowest(step, self.limits.slowest)
        ]
        self._longest = heapq.nlargest(self.limits.slowest, (*self._longest, *placed))
        self.slowest.update({place for _, place in placed} & {p for _, p in self._longest})

    def kept(self, context: Context, step: Step) -> dict[Candidate, list[str]]:
        """The trajectories of ``step`` that become traces, by row, each with every reason."""
        step_place = place_of(step)
        so_far = {row for place, row in self.slowest if place == step_place}
        slow = {place for _, place in _slowest(step, self.limits.slowest_of_step)}
        ranked = list[tuple[int, float, _Row, Candidate, list[str]]]()
        for batch, shard in shards_of(step):
            share_of = context.shares(step, batch.mode, batch.ordinal)
            failed = {
                local
                for local, calls in shard.tool_calls.items()
                if any(call.status in FAILED for call in calls)
            }
            for local, length in enumerate(lengths_in(shard)):
                if length is None:
                    continue
                row = (batch.mode, batch.ordinal, shard.offset + local)
                hashed = share_of(row[2])
                tests = (row in so_far, row in slow, local in failed, hashed < self.limits.share)
                if any(tests):
                    why = list(compress(_ORDER, tests))
                    candidate = Candidate.of(batch, shard, local)
                    ranked.append((tests.index(True), hashed, row, candidate, why))
        best = sorted(ranked, key=itemgetter(0, 1, 2))[: self.limits.trajectories]
        return {candidate: why for *_, candidate, why in sorted(best, key=itemgetter(2))}


def _slowest(step: Step, count: int) -> list[tuple[int, _Row]]:
    """The longest trajectories of a step with their lengths, ns; of equal ones the later."""
    shards = [(batch, shard, lengths_in(shard)) for batch, shard in shards_of(step)]
    every = (length for *_, lengths in shards for length in lengths if length is not None)
    least = min(heapq.nlargest(count, every), default=None)
    if least is None:
        return []
    return heapq.nlargest(
        count,
        (
            (length, (batch.mode, batch.ordinal, shard.offset + local))
            for batch, shard, lengths in shards
            for local, length in enumerate(lengths)
            if length is not None and length >= least
        ),
    )
