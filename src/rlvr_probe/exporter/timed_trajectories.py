"""Trajectories with times of their own: their start and end, and whether a tool failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rlvr_probe.model.batch import Batch, BatchShard
from rlvr_probe.model.columns import lengths_of
from rlvr_probe.model.trace import Step

__all__ = ["FAILED", "Candidate", "candidates", "lengths_in", "shards_of"]

FAILED: Final = frozenset({"error", "cancelled"})
"""Statuses of a tool call that make its trajectory a failed one: no mistake of the model."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A trajectory with times of its own, on the clock of the run, ns."""

    batch: Batch
    shard: BatchShard
    local: int
    """Row in the shard."""
    start_ns: int
    end_ns: int

    @classmethod
    def of(cls, batch: Batch, shard: BatchShard, local: int) -> Candidate:
        """Row ``local`` of a shard.

        Raises:
            ValueError: Its times are unknown.
        """
        times = _times(shard, local)
        if times is None:
            raise ValueError(f"row {local} has no times of its own")
        return cls(batch, shard, local, *times)

    @property
    def row(self) -> int:
        """Row in the batch over all ranks."""
        return self.shard.offset + self.local

    @property
    def place(self) -> tuple[str, int, int]:
        """Mode, ordinal and row, which distinguish it from the others of its step."""
        return self.batch.mode, self.batch.ordinal, self.row

    @property
    def failed(self) -> bool:
        """Whether a tool of it raised or was given up."""
        calls = self.shard.tool_calls.get(self.local, ())
        return any(call.status in FAILED for call in calls)


def candidates(step: Step) -> Iterator[Candidate]:
    """Every trajectory of a step whose own times are known, by batch and row."""
    for batch, shard in shards_of(step):
        for local, length in enumerate(lengths_in(shard)):
            if length is not None:
                yield Candidate.of(batch, shard, local)


def shards_of(step: Step) -> Iterator[tuple[Batch, BatchShard]]:
    """The shards of every batch of a step, those of evaluations last."""
    for batch in (*step.batches, *step.evaluations):
        for shard in batch.shards:
            yield batch, shard


def lengths_in(shard: BatchShard) -> list[int | None]:
    """How long each trajectory of a shard took, ns; empty where none is known."""
    if shard.times_ns is not None:
        return lengths_of(shard.times_ns)
    if not shard.turns and not shard.tool_calls:
        return []
    return lengths_of([_times(shard, local) for local in range(len(shard.response_tokens))])


def _times(shard: BatchShard, local: int) -> tuple[int, int] | None:
    """Start and end of a trajectory; where rows share one generation, those of its turns."""
    if shard.times_ns is not None:
        return shard.times_ns[local]
    parts = [(call.start_ns, call.end_ns) for call in shard.tool_calls.get(local, ())]
    for turn in shard.turns.get(local, ()):
        if turn.start_ns is not None and turn.end_ns is not None:
            parts.append((turn.start_ns, turn.end_ns))
    return (min(start for start, _ in parts), max(end for _, end in parts)) if parts else None
