"""Which data-parallel rank of the workload a group of the run is placed on.

PolyTrace knows one rank per prompt, restores the prompt order by sorting on that rank, and expects
every rank to hold equally many prompts. A real run need not be like that: a group may straddle
ranks, shares may differ, and an engine takes requests in any order. Ranks are never invented: a
group lies on the engine of its first sample, and neighbouring engines are folded into one
data-parallel rank until every batch falls into equal contiguous shares. In the worst case one rank
holds everything. Where each sample really ran stays in ``x_rlvr``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, count, groupby, islice, pairwise, repeat
from typing import TypeVar

from rlvr_probe.model.batch import BatchShard, Group
from rlvr_probe.model.workload import Workload, WorkloadBatch

__all__ = [
    "Layout",
    "Placement",
    "PlannedBatch",
    "ReplayCaps",
    "choose_placement",
    "engine_of",
    "engines_of_processes",
    "groups_of",
    "hide_controller",
    "rows_of_controller",
]


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Placement:
    """The data-parallel ranks of a workload, the same in every step.

    Attributes:
        dp_size: Data-parallel ranks; dense from 0.
        tp: Tensor-parallel size of the rollout engine; global rank = ``dp_rank * tp``.
        dp_of: Data-parallel rank by engine index; empty if engines are unknown.
        reason: Why ``dp_size`` is not the number of engines; None if it is.
        reordered: Whether prompts are written by engine, and not in the order of the trainer.
    """

    dp_size: int
    tp: int
    dp_of: Mapping[int, int]
    reason: str | None
    reordered: bool = False

    def dp_rank(self, engine: int | None) -> int:
        """The data-parallel rank of the groups that started on ``engine``."""
        return 0 if engine is None else self.dp_of.get(engine, 0)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the groups of one batch started.

    Attributes:
        groups: Their indices in the batch, ascending.
        heads: Engine of the first sample of each; None if unknown.
        engines: Every engine that served a sample of the batch, or none.
        served: Whether the engine of each sample was recorded, rather than derived from its rank.
    """

    groups: Sequence[int]
    heads: Sequence[int | None]
    engines: frozenset[int]
    served: bool

    @classmethod
    def of(cls, batch: WorkloadBatch, tp: int, skipped: frozenset[int] = frozenset()) -> Layout:
        """The layout of ``batch`` without the groups that are ``skipped``."""
        groups, heads = list[int](), list[int | None]()
        engines = set[int]()
        known = True
        for shard in batch.batch.shards:
            own = engine_of(batch, shard, tp)
            if shard.engines is not None:
                engines.update(engine for engine in shard.engines if engine is not None)
            elif own is None:
                known = False
            else:
                engines.add(own)
            for local, group in enumerate(groups_of(batch, shard)):
                if (not groups or group != groups[-1]) and group not in skipped:
                    groups.append(group)
                    heads.append(own if shard.engines is None else shard.engines[local])
        if not known:
            heads = [None] * len(heads)
        served = all(shard.engines is not None for shard in batch.batch.shards)
        dense = not skipped and groups == list(range(len(groups)))
        return cls(range(len(groups)) if dense else groups, heads, frozenset(engines), served)


def groups_of(batch: WorkloadBatch, shard: BatchShard) -> Iterable[int]:
    """Group of each row of ``shard``."""
    if shard.groups is not None:
        return shard.groups
    size = batch.batch.group_size
    first, begin = divmod(shard.offset, size)
    groups = chain.from_iterable(map(repeat, count(first), repeat(size)))
    return islice(groups, begin, begin + len(shard.response_tokens))


def engine_of(batch: WorkloadBatch, shard: BatchShard, tp: int) -> int | None:
    """Index of the rollout engine in whose rank ``shard`` was generated; None if unknown."""
    rank = batch.ranks.get(shard.process, shard.rank)
    return None if rank is None else rank // tp


def rows_of_controller(workload: Workload) -> bool:
    """Whether one process, whose rank names no engine, has the rows of several engines."""
    processes = {shard.process for batch in workload.batches for shard in batch.batch.shards}
    return len(processes) == 1 and workload.world_size > workload.rollout_tp


def hide_controller(batch: WorkloadBatch) -> WorkloadBatch:
    """``batch`` with unknown engines where they were not recorded."""
    shards = [
        replace(shard, engines=(None,) * len(shard.response_tokens))
        if shard.engines is None
        else shard
        for shard in batch.batch.shards
    ]
    return replace(batch, batch=replace(batch.batch, shards=shards))


def engines_of_processes(batch: WorkloadBatch, tp: int) -> dict[int, int | None]:
    """Engine of each process by its rank; None where the samples' own were recorded."""
    engines: dict[int, int | None] = {}
    for shard in batch.batch.shards:
        engine = engine_of(batch, shard, tp) if shard.engines is None else None
        engines[shard.process] = engine if engines.get(shard.process, engine) == engine else None
    return engines


def choose_placement(layouts: Sequence[Layout], tp: int) -> Placement:
    """The placement with the most data-parallel ranks that is true and the same for every batch.

    Args:
        layouts: One per batch.
        tp: Tensor-parallel size of the rollout engine, at least 1.
    """
    if any(head is None for layout in layouts for head in layout.heads):
        return Placement(1, tp, {}, "the rollout engine of some samples is unknown")
    known = [[head for head in layout.heads if head is not None] for layout in layouts]
    ordered = sorted(frozenset(chain.from_iterable(layout.engines for layout in layouts)))
    if any(left > right for heads in known for left, right in pairwise(heads)):
        if not all(layout.served for layout in layouts):
            reason = "prompts do not lie on the engines in prompt order"
        elif all(_equal(heads, ordered) for heads in known):
            dp_of = {engine: position for position, engine in enumerate(ordered)}
            return Placement(len(ordered), tp, dp_of, None, reordered=True)
        else:
            reason = "engines started unequal numbers of groups, in no order"
        return Placement(1, tp, dict.fromkeys(ordered, 0), reason)

    # Cuts between neighbouring engines that split every batch in the same proportion. Of several
    # in one place the last counts: an engine on which no group starts goes with the one before
    # it, which holds the first samples of its groups.
    counts = {tuple(sorted(Counter(heads).items())) for heads in known}
    common = set.intersection(*(_cuts(dict(count), ordered) for count in counts))
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
        "started unequal numbers of groups"
    )
    return Placement(size, tp, dp_of, reason)


def _equal(heads: Sequence[int], engines: Sequence[int]) -> bool:
    """Whether equally many groups started on each of ``engines``."""
    counts = Counter(heads)
    return len({counts[engine] for engine in engines}) == 1


def _cuts(groups: Mapping[int, int], ordered: Sequence[int]) -> set[tuple[Fraction, int]]:
    """(share of the groups that start before an engine, its position) for every inner cut."""
    total = sum(groups.values())
    cuts: set[tuple[Fraction, int]] = set()
    before = 0
    for position, engine in enumerate(ordered):
        if 0 < before < total:
            cuts.add((Fraction(before, total), position))
        before += groups.get(engine, 0)
    return cuts


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch and its groups in the order in which they are written.

    Attributes:
        batch: Its index is the workload step.
        order: Indices of groups; prompt ``i`` of the workload is group ``order[i]`` of the batch.
    """

    batch: WorkloadBatch
    order: Sequence[int]

    @property
    def prompts(self) -> int:
        """Groups that are written."""
        return len(self.order)

    def groups(self) -> Iterator[Group]:
        """The groups in their order; held together only where the trainer had another one."""
        return self._ordered((group.index, group) for group in self.batch.batch.groups())

    def rows(self) -> Iterator[tuple[int, slice]]:
        """The groups in their order, each as its index and its rows in the batch."""
        return self._ordered((group, (group, rows)) for group, rows in self._all_rows())

    def _all_rows(self) -> Iterator[tuple[int, slice]]:
        shards = (groups_of(self.batch, shard) for shard in self.batch.batch.shards)
        start = 0
        for group, members in groupby(chain.from_iterable(shards)):
            stop = start + sum(1 for _ in members)
            yield group, slice(start, stop)
            start = stop

    def _ordered(self, entries: Iterable[tuple[int, _T]]) -> Iterator[_T]:
        written = set[int]() if isinstance(self.order, range) else set(self.order)
        taken = ((index, entry) for index, entry in entries if not written or index in written)
        if list(self.order) == sorted(self.order):
            return (entry for _, entry in taken)
        return map(dict(taken).__getitem__, self.order)


@dataclass(frozen=True, slots=True)
class ReplayCaps:
    """Longest lengths that a replay allows, tokens: of a response, and of a whole context."""

    response: int
    context: int
