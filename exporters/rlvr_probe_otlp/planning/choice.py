"""Which trajectories become traces: the slow, the failed, and a few of the rest."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from rlvr_probe.model.batch import Batch, BatchShard
from rlvr_probe.model.trace import Step, Trace
from rlvr_probe_otlp.planning.context import Context, Limits
from rlvr_probe_otlp.planning.identifiers import share_of

__all__ = ["FAILED", "Candidate", "Choice", "candidates"]

FAILED = frozenset({"error", "cancelled"})
"""What became of a tool call that makes its trajectory a failed one."""

_ORDER = ("slowest_so_far", "slowest_of_step", "failed", "sampled")


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One trajectory with times of its own, on the clock of the run, ns."""

    mode: str
    ordinal: int
    row: int
    start_ns: int
    end_ns: int
    batch: Batch
    shard: BatchShard
    local: int
    """Row in the shard."""

    @property
    def place(self) -> tuple[str, int, int]:
        """What tells it from the others of its step."""
        return self.mode, self.ordinal, self.row


def candidates(step: Step) -> Iterator[Candidate]:
    """Every trajectory of a step whose own times are known, by batch and row."""
    for batch in (*step.batches, *step.evaluations):
        for shard in batch.shards:
            for local in range(len(shard.response_tokens)):
                times = _times(shard, local)
                if times is not None:
                    row = shard.offset + local
                    yield Candidate(batch.mode, batch.ordinal, row, *times, batch, shard, local)


def _times(shard: BatchShard, local: int) -> tuple[int, int] | None:
    """Start and end of a trajectory; where rows share one generation, those of its turns."""
    if shard.times_ns is not None:
        return shard.times_ns[local]
    turns, calls = shard.turns.get(local, ()), shard.tool_calls.get(local, ())
    parts = [(call.start_ns, call.end_ns) for call in calls]
    for turn in turns:
        if turn.start_ns is not None and turn.end_ns is not None:
            parts.append((turn.start_ns, turn.end_ns))
    return (min(start for start, _ in parts), max(end for _, end in parts)) if parts else None


_Place = tuple[int, int, int, int, str, int, int]


@dataclass(slots=True)
class Choice:
    """What is kept of a run.

    Attributes:
        limits: How much.
        slowest: Places of the trajectories that were among its slowest up to the end of their step.
    """

    limits: Limits
    slowest: set[_Place] = field(default_factory=set)
    _longest: list[tuple[int, _Place]] = field(default_factory=list)

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
        durations = [(one.end_ns - one.start_ns, _place(step, one)) for one in candidates(step)]
        self._longest = heapq.nlargest(self.limits.slowest, (*self._longest, *durations))
        self.slowest.update({place for _, place in durations} & {p for _, p in self._longest})

    def kept(self, context: Context, step: Step) -> dict[Candidate, list[str]]:
        """The trajectories of ``step`` that become traces, by row, each with every reason."""
        reasons = dict[tuple[str, int, int], list[str]]()
        known = {one.place: one for one in candidates(step)}
        lengths = ((one.end_ns - one.start_ns, place) for place, one in known.items())
        slow = {place for _, place in heapq.nlargest(self.limits.slowest_of_step, lengths)}
        ranked = list[tuple[int, float, tuple[str, int, int]]]()
        for place, one in known.items():
            hashed = share_of(context.trajectory(step, *place)[0])
            calls = one.shard.tool_calls.get(one.local, ())
            why = [
                reason
                for reason, so in zip(
                    _ORDER,
                    (
                        _place(step, one) in self.slowest,
                        place in slow,
                        any(call.status in FAILED for call in calls),
                        hashed < self.limits.share,
                    ),
                    strict=True,
                )
                if so
            ]
            if why:
                reasons[place] = why
                ranked.append((_ORDER.index(why[0]), hashed, place))
        best = sorted(place for *_, place in sorted(ranked)[: self.limits.trajectories])
        return {known[place]: reasons[place] for place in best}


def _place(step: Step, one: Candidate) -> _Place:
    return step.attempt, step.session, step.life, step.number, *one.place
