"""``dapo_filter_indices.jsonl``: which prompts of each batch the trainer kept and used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rlvr_probe_polytrace.placement import PlannedBatch
from rlvr_probe_polytrace.records import FilterRecord

__all__ = ["Filter", "filter_records", "make_filter", "trained_on"]


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter of a whole workload.

    Attributes:
        target: Prompts that a trainer step trains on.
        kept: Whether the kept prompts are those that passed. PolyTrace takes the first of them
            for the used ones; if the trainer took others, the used ones stand for the kept ones,
            so that a replay trains on the right ones.
    """

    target: int
    kept: bool


@dataclass(frozen=True, slots=True)
class _Chosen:
    planned: PlannedBatch
    kept: list[int]
    used: list[int]


def make_filter(batches: Sequence[PlannedBatch]) -> tuple[Filter | None, str | None]:
    """The filter, if the trainer had one that the format can express, and a note."""
    if any(batch.batch.batch.unselected for batch in batches):
        return None, (
            "no filter indices: the trainer is to filter prompts and reported no selection, so the "
            "prompts trained on are unknown; a replay trains on all of them, and the formal log "
            "has no stage behind the filter"
        )
    if all(batch.batch.batch.kept is batch.batch.batch.used is None for batch in batches):
        return None, None
    steps = [batch.batch.batch.step for batch in batches]
    if steps != sorted(steps) or len({batch.batch.session for batch in batches}) > 1:
        return None, "no filter indices: PolyTrace counts trainer steps upwards, in one training"
    target = max(sum(len(batch.used) for batch in members) for members in _by_step(batches))
    if not target:
        return None, "no filter indices: no prompt of the workload was trained on"
    for members in _by_step(batches):
        before = 0
        for batch in members:
            every = batch.used == batch.kept and len(batch.kept) == batch.planned.prompts
            if batch.used != batch.kept[: max(0, target - before)] and not every:
                note = (
                    "filter indices: the prompts trained on are not the first that passed, so that "
                    "kept_prompt_indices are the used ones; x_rlvr of a prompt says if it passed"
                )
                return Filter(target, kept=False), note
            before += len(batch.kept)
    return Filter(target, kept=True), None


def trained_on(batches: Sequence[PlannedBatch]) -> int:
    """Prompts of ``batches`` that were trained on."""
    return sum(len(_choose(batch).used) for batch in batches)


def filter_records(
    batches: Sequence[PlannedBatch], chosen: Filter, n: int
) -> Iterator[FilterRecord]:
    """One record per batch; indices count prompts in their written order.

    Args:
        batches: All that are written.
        chosen: What :func:`make_filter` says of them.
        n: Samples per prompt.
    """
    for members in _by_step(batches):
        before = 0
        for ordinal, batch in enumerate(members, 1):
            kept = batch.kept if chosen.kept else batch.used
            yield FilterRecord(
                workload_step=batch.planned.batch.index,
                trainer_step=batch.planned.batch.batch.step,
                gen_batch_index=ordinal,
                prompt_count=batch.planned.prompts,
                n_sampling=n,
                train_batch_size=chosen.target,
                num_prompt_in_batch_before=before,
                kept_prompt_count=len(kept),
                used_prompt_count=len(batch.used),
                kept_prompt_indices=kept,
                used_prompt_indices=batch.used,
            )
            before += len(kept)


def _by_step(batches: Sequence[PlannedBatch]) -> Iterator[list[_Chosen]]:
    for _, members in groupby(batches, key=lambda batch: batch.batch.batch.step):
        yield [_choose(batch) for batch in members]


def _choose(planned: PlannedBatch) -> _Chosen:
    inner = planned.batch.batch
    kept = [i for i, group in enumerate(planned.order) if inner.kept is None or group in inner.kept]
    passed = inner.kept if inner.used is None else inner.used
    used = [i for i, group in enumerate(planned.order) if passed is None or group in passed]
    return _Chosen(planned, kept, used)
