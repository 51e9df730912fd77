"""Which data-parallel rank of the workload a group of the run is placed on.

PolyTrace knows one rank per prompt, restores the prompt order by sorting on that rank, and expects
every rank to hold equally many prompts. A real run need not be like that: a group may straddle
ranks, and shares may differ. Ranks are never invented and no group is moved: neighbouring engines
are folded into one data-parallel rank until every batch falls into equal contiguous shares. In the
worst case one rank holds everything. Where each sample really ran stays in ``x_rlvr``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from rlvr_probe.model.batch import BatchShard
from rlvr_probe.model.workload import WorkloadBatch

__all__ = ["Placement", "engine_of", "place"]


@dataclass(frozen=True, slots=True)
class Placement:
    """The data-parallel ranks of a workload, the same in every step.

    Attributes:
        dp_size: Data-parallel ranks; dense from 0.
        tp: Tensor-parallel size of the rollout engine; global rank = ``dp_rank * tp``.
        dp_of: Data-parallel rank by engine index; empty if engines are unknown.
        reason: Why ``dp_size`` is not the number of engines; None if it is.
    """

    dp_size: int
    tp: int
    dp_of: Mapping[int, int]
    reason: str | None

    def dp_rank(self, engine: int | None) -> int:
        """The data-parallel rank on which the groups that began on ``engine`` are placed."""
        return 0 if engine is None else self.dp_of.get(engine, 0)


def engine_of(batch: WorkloadBatch, shard: BatchShard, tp: int) -> int | None:
    """Index of the rollout engine that generated ``shard``; None if its rank is unknown."""
    rank = batch.ranks.get(shard.process, shard.rank)
    return None if rank is None else rank // tp


def place(batches: Sequence[WorkloadBatch], tp: int) -> Placement:
    """The placement with the most data-parallel ranks that is true and the same for every batch.

    Args:
        batches: Complete; rows of each without gaps.
        tp: Tensor-parallel size of the rollout engine, at least 1.
    """
    layouts: set[tuple[tuple[int, int], ...]] = set()
    for batch in batches:
        layout = _groups_by_engine(batch, tp)
        if layout is None:
            return Placement(1, tp, {}, "the rank of some samples is unknown")
        layouts.add(layout)
    ordered = sorted({engine for layout in layouts for engine, _ in layout})
    if any(left > right for layout in layouts for (left, _), (right, _) in pairwise(layout)):
        reason = "prompts do not lie on the engines in prompt order"
        return Placement(1, tp, dict.fromkeys(ordered, 0), reason)

    # Cuts between neighbouring engines that split every batch in the same proportion. Of several
    # in one place the last counts: an engine on which no group begins goes with the one before
    # it, which holds the first samples of its groups.
    common = set.intersection(*(_cuts(layout, ordered) for layout in layouts))
    cuts = dict(sorted(common))
    size = next(
        size
        for size in range(len(cuts) + 1, 0, -1)
        if all(Fraction(k, size) in cuts for k in range(1, size))
    )
    starts = [cuts[Fraction(k, size)] for k in range(1, size)]
    dp_of = {
        engine: sum(start <= position for start in starts)
        for position, engine in enumerate(ordered)
    }
    if size == len(ordered):
        return Placement(size, tp, dp_of, None)
    reason = (
        f"{len(ordered)} engines are folded into {size}: groups straddle engines, or engines "
        "began unequal numbers of groups"
    )
    return Placement(size, tp, dp_of, reason)


def _groups_by_engine(batch: WorkloadBatch, tp: int) -> tuple[tuple[int, int], ...] | None:
    """(engine, groups that begin on it) in row order; None if an engine is unknown."""
    size = batch.batch.group_size
    found: list[tuple[int, int]] = []
    for shard in batch.batch.shards:
        engine = engine_of(batch, shard, tp)
        if engine is None:
            return None
        first, after = shard.offset, shard.offset + len(shard.response_tokens)
        found.append((engine, -(-after // size) + (-first // size)))
    return tuple(found)


def _cuts(layout: Sequence[tuple[int, int]], ordered: Sequence[int]) -> set[tuple[Fraction, int]]:
    """(share of the groups that begin before an engine, its position) for every inner cut."""
    groups: dict[int, int] = {}
    for engine, count in layout:
        groups[engine] = groups.get(engine, 0) + count
    total = sum(groups.values())
    cuts: set[tuple[Fraction, int]] = set()
    before = 0
    for position, engine in enumerate(ordered):
        if 0 < before < total:
            cuts.add((Fraction(before, total), position))
        before += groups.get(engine, 0)
    return cuts
