"""Which trajectories of a step are drawn: the slowest, the failed, and a sample of the rest."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from rlvr_probe.model.batch import Batch, BatchShard
from rlvr_probe.model.trace import Step

__all__ = ["Candidate", "candidates", "chosen"]

_FAILED: Final = frozenset({"error", "cancelled"})
"""Statuses of a tool call that are no mistake of the model."""

_SLOWEST: Final = 4
"""The slowest take one of so many places."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One trajectory with times of its own, on the clock of the run, ns."""

    batch: Batch
    shard: BatchShard
    local: int
    """Row in the shard."""
    start_ns: int
    end_ns: int

    @property
    def row(self) -> int:
        """Row in the batch over all ranks."""
        return self.shard.offset + self.local

    @property
    def failed(self) -> bool:
        """Whether a tool of it raised or was given up."""
        calls = self.shard.tool_calls.get(self.local, ())
        return any(call.status in _FAILED for call in calls)


def candidates(step: Step) -> Iterator[Candidate]:
    """Every trajectory of a step whose own times are known, by batch and row."""
    for batch in (*step.batches, *step.evaluations):
        for shard in batch.shards:
            for local in range(len(shard.response_tokens)):
                times = _times(shard, local)
                if times is not None:
                    yield Candidate(batch, shard, local, *times)


def chosen(step: Step, most: int) -> Sequence[tuple[Candidate, str]]:
    """At most ``most`` trajectories of a step, each with why it is one; empty if all are.

    A quarter of the places is for the slowest, then come the failed; what is left goes to others by
    a hash of where they are, the same whenever it is asked.
    """
    known = list(candidates(step))
    if len(known) <= most:
        return [(one, "") for one in known]
    reasons = dict[int, str]()
    lengths = ((one.end_ns - one.start_ns, -at) for at, one in enumerate(known))
    for _, at in heapq.nlargest(most // _SLOWEST, lengths):
        reasons[-at] = "slowest"
    rest = [
        (0 if one.failed else 1, _hash(step, one), at)
        for at, one in enumerate(known)
        if at not in reasons
    ]
    for sampled, _, at in heapq.nsmallest(most - len(reasons), rest):
        reasons[at] = "sampled" if sampled else "failed"
    return [(known[at], reasons[at]) for at in sorted(reasons)]


def _times(shard: BatchShard, local: int) -> tuple[int, int] | None:
    """Start and end of a trajectory; where rows share one generation, those of its turns."""
    if shard.times_ns is not None:
        return shard.times_ns[local]
    calls = shard.tool_calls.get(local, ())
    parts = [(call.start_ns, call.end_ns) for call in calls]
    for turn in shard.turns.get(local, ()):
        if turn.start_ns is not None and turn.end_ns is not None:
            parts.append((turn.start_ns, turn.end_ns))
    return (min(start for start, _ in parts), max(end for _, end in parts)) if parts else None


def _hash(step: Step, one: Candidate) -> bytes:
    place = (step.session, step.life, step.number, one.batch.mode, one.batch.ordinal, one.row)
    return blake2b(repr(place).encode(), digest_size=8).digest()
