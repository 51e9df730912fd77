"""How many trajectories there are, and the lengths of those that are counted."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from rlvr_probe.analysis.quantiles import distribution
from rlvr_probe.model.batch import Batch

__all__ = ["counted", "counts", "lengths"]


def counted(batches: Iterable[Batch], *, whole: bool) -> list[Batch]:
    """The batches that figures are made of.

    Args:
        batches: Some of a run.
        whole: Whether any batch of the run is whole: then those that are. What a batch lacks is
            rather long than short.
    """
    return [batch for batch in batches if batch.whole or not whole]


def counts(batches: Sequence[Batch]) -> dict[str, int]:
    """Groups, trajectories and tokens of ``batches``."""
    shards = [shard for batch in batches for shard in batch.shards]
    return {
        "groups": sum(batch.count_groups()[0] for batch in batches),
        "trajectories": sum(batch.rows for batch in batches),
        "prompt_tokens": sum(sum(shard.prompt_tokens) for shard in shards),
        "response_tokens": sum(sum(shard.response_tokens) for shard in shards),
    }


def lengths(batches: Sequence[Batch]) -> dict[str, Any]:
    """How long prompts and responses are, and how many the cap stopped."""
    return {
        "prompt_tokens": distribution(_column(batches, "prompt_tokens")),
        "response_tokens": distribution(_column(batches, "response_tokens")),
        "truncated_share": _truncated_share(batches),
    }


def _column(batches: Iterable[Batch], name: str) -> array[int]:
    """All values of ``prompt_tokens`` or ``response_tokens`` in ``batches``, sorted."""
    values = array("I")
    for batch in batches:
        for shard in batch.shards:
            values.extend(shard.prompt_tokens if name == "prompt_tokens" else shard.response_tokens)
    return array("I", sorted(values))


def _truncated_share(batches: Iterable[Batch]) -> float | None:
    """Share of the trajectories that the cap stopped, 0..1; None where nobody recorded it."""
    stopped = known = 0
    for batch in batches:
        for shard in batch.shards:
            if shard.truncated is not None:
                stopped += sum(map(bool, shard.truncated))
                known += len(shard.truncated)
    return stopped / known if known else None
