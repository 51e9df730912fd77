"""What a workload must fulfil to be written at all: the error says where it does not."""

from __future__ import annotations

from rlvr_probe.exceptions import WorkloadError
from rlvr_probe.model.batch import Batch
from rlvr_probe.model.workload import Workload, WorkloadBatch
from rlvr_probe_polytrace.layout import MAX_COUNT
from rlvr_probe_polytrace.placement import groups_of

__all__ = ["check_workload"]


def check_workload(workload: Workload) -> None:
    """Refuse a workload that breaks its own rules, or that no replay could follow.

    Raises:
        WorkloadError: It does.
    """
    if workload.rollout_tp < 1 or workload.group_size < 1:
        raise WorkloadError(
            f"found rollout_tp {workload.rollout_tp} and group_size {workload.group_size}, "
            "expected both to be at least 1; the recording is inconsistent"
        )
    for position, batch in enumerate(workload.batches):
        _check(batch, position, workload.group_size)
    queued = sum(batch.batch.queued for batch in workload.batches)
    if queued:
        raise WorkloadError(
            f"found {queued:,} of {len(workload.batches):,} batches that were generated beside the "
            "training and taken from a queue, expected each in the step that trains on it; "
            "PolyTrace replays generation and training one after the other"
        )


def _check(batch: WorkloadBatch, position: int, group_size: int) -> None:
    """Refuse a batch that breaks the rules of a workload.

    Raises:
        WorkloadError: It does.
    """
    inner = batch.batch

    def refuse(found: str, expected: str) -> WorkloadError:
        return WorkloadError(
            f"batch {position} (step {inner.step}): found {found}, expected {expected}; "
            "record the run again, or report this as a bug of the trace reader"
        )

    if batch.index != position:
        raise refuse(f"index {batch.index}", f"index {position}")
    if inner.group_size != group_size:
        raise refuse(f"{inner.group_size} samples per prompt", f"{group_size} as in every batch")
    rows = 0
    for shard in inner.shards:
        if shard.offset != rows:
            raise refuse(f"rows of a rank from {shard.offset}", f"them from {rows}")
        if len(shard.prompt_tokens) != len(shard.response_tokens):
            raise refuse(
                f"{len(shard.prompt_tokens)} prompt lengths in a shard",
                f"{len(shard.response_tokens)}, as many as response lengths",
            )
        rows += len(shard.response_tokens)
        for what, lengths, least in (
            ("prompt", shard.prompt_tokens, 1),
            ("response", shard.response_tokens, 0),
        ):
            if not len(lengths):
                continue
            for length in (min(lengths), max(lengths)):
                if not least <= length <= MAX_COUNT:
                    raise refuse(
                        f"a {what} of {length} tokens", f"a length from {least} to {MAX_COUNT}"
                    )
    if rows != inner.total or rows == 0:
        raise refuse(f"{rows} rows", f"{inner.total}, at least 1")
    if not _ragged(inner) and rows % group_size:
        raise refuse(f"{rows} rows", f"whole groups of {group_size}")
    _check_prompts(batch)


def _ragged(batch: Batch) -> bool:
    return any(shard.groups is not None for shard in batch.shards)


def _check_prompts(batch: WorkloadBatch) -> None:
    """Refuse samples of one prompt that have prompts of different length.

    Raises:
        WorkloadError: There are some.
    """
    current, length = -1, 0
    for shard in batch.batch.shards:
        for group, tokens in zip(groups_of(batch, shard), shard.prompt_tokens, strict=True):
            if group == current and tokens != length:
                raise WorkloadError(
                    f"batch {batch.index} (step {batch.batch.step}): found prompt lengths "
                    f"{sorted((length, tokens))} in group {group}, expected one for all samples of "
                    "a prompt; its rows are not grouped as the trainer's group size says"
                )
            current, length = group, tokens
