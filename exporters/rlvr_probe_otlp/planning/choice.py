"""Which trajectories become traces: the slow, the failed, and a few of the rest."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rlvr_probe.model.batch import Batch, BatchShard
from rlvr_probe.model.columns import lengths_of
from rlvr_probe.model.trace import Step, Trace
from rlvr_probe_otlp.planning.context import Context, Limits

__all__ = ["FAILED", "Candidate", "Choice", "candidates"]

FAILED = frozenset({"error", "cancelled"})
"""What became of a tool call that makes its trajectory a failed one."""

_ORDER = ("slowest_so_far", "slowest_of_step", "failed", "sampled")


_Row = tuple[str, int, int]
"""Mode, ordinal and row of a trajectory in its step."""


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

    @classmethod
    def of(cls, batch: Batch, shard: BatchShard, local: int) -> Candidate:
        """Row ``local`` of a shard, whose times are known."""
        times = _times(shard, local)
        if times is None:
            raise ValueError(f"row {local} has no times of its own")
        row = shard.offset + local
        return cls(batch.mode, batch.ordinal, row, *times, batch, shard, local)

    @property
    def place(self) -> _Row:
        """What tells it from the others of its step."""
        return self.mode, self.ordinal, self.row


def candidates(step: Step) -> Iterator[Candidate]:
    """Every trajectory of a step whose own times are known, by batch and row."""
    for batch, shard in _shards(step):
        for local, length in enumerate(_lengths(shard)):
            if length is not None:
                yield Candidate.of(batch, shard, local)


def _shards(step: Step) -> Iterator[tuple[Batch, BatchShard]]:
    for batch in (*step.batches, *step.evaluations):
        for shard in batch.shards:
            yield batch, shard


def _lengths(shard: BatchShard) -> list[int | None]:
    """How long each trajectory took, ns."""
    if shard.times_ns is not None:
        return lengths_of(shard.times_ns)
    if not shard.turns and not shard.tool_calls:
        return []
    return lengths_of([_times(shard, local) for local in range(len(shard.response_tokens))])


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
        durations = _slowest(step, self.limits.slowest)
        placed = [(length, _place(step, *place)) for length, place in durations]
        self._longest = heapq.nlargest(self.limits.slowest, (*self._longest, *placed))
        self.slowest.update({place for _, place in placed} & {p for _, p in self._longest})

    def kept(self, context: Context, step: Step) -> dict[Candidate, list[str]]:
        """The trajectories of ``step`` that become traces, by row, each with every reason."""
        so_far = {place[-3:] for place in self.slowest if place[:4] == _place(step)}
        slow = {place for _, place in _slowest(step, self.limits.slowest_of_step)}
        reasons = dict[_Row, list[str]]()
        known = dict[_Row, Candidate]()
        ranked = list[tuple[int, float, _Row]]()
        for batch, shard in _shards(step):
            share_of = context.shares(step, batch.mode, batch.ordinal)
            failed = {
                local
                for local, calls in shard.tool_calls.items()
                if any(call.status in FAILED for call in calls)
            }
            for local, length in enumerate(_lengths(shard)):
                place = (batch.mode, batch.ordinal, shard.offset + local)
                if length is None:
                    continue
                hashed = share_of(place[2])
                tests = (
                    place in so_far,
                    place in slow,
                    local in failed,
                    hashed < self.limits.share,
                )
                if any(tests):
                    why = [reason for reason, so in zip(_ORDER, tests, strict=True) if so]
                    reasons[place], known[place] = why, Candidate.of(batch, shard, local)
                    ranked.append((_ORDER.index(why[0]), hashed, place))
        best = sorted(place for *_, place in sorted(ranked)[: self.limits.trajectories])
        return {known[place]: reasons[place] for place in best}


def _slowest(step: Step, count: int) -> list[tuple[int, _Row]]:
    """The longest trajectories of a step with their lengths, ns; of equal ones the later."""
    shards = [(batch, shard, _lengths(shard)) for batch, shard in _shards(step)]
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


def _place(step: Step, *row: Any) -> Any:
    return step.attempt, step.session, step.life, step.number, *row
