"""Lengths of the trajectories that are counted."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from rlvr_probe.model.batch import Batch

__all__ = ["column", "counted", "truncated_share"]


def counted(batches: Iterable[Batch], *, whole: bool) -> list[Batch]:
    """The batches that figures are made of.

    Args:
        batches: Some of a run.
        whole: Whether any batch of the run is whole: then those that are. What a batch lacks is
            rather long than short.
    """
    return [batch for batch in batches if batch.whole or not whole]


def column(batches: Iterable[Batch], name: str) -> array[int]:
    """All values of ``prompt_tokens`` or ``response_tokens`` in ``batches``, sorted."""
    values = array("I")
    for batch in batches:
        for shard in batch.shards:
            values.extend(shard.prompt_tokens if name == "prompt_tokens" else shard.response_tokens)
    return array("I", sorted(values))


def truncated_share(batches: Iterable[Batch]) -> float | None:
    """Share of the trajectories that the cap stopped, 0..1; None where nobody recorded it."""
    stopped = known = 0
    for batch in batches:
        for shard in batch.shards:
            if shard.truncated is not None:
                stopped += sum(map(bool, shard.truncated))
                known += len(shard.truncated)
    return stopped / known if known else None
