"""Exact quantiles of token counts and times."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from rlvr_probe.model.batch import Batch

__all__ = ["column", "quantiles", "truncated_share"]

_SHARES = (("p50", 50), ("p90", 90), ("p99", 99))


def column(batches: Iterable[Batch], name: str) -> array[int]:
    """All values of ``prompt_tokens`` or ``response_tokens`` in ``batches``, sorted."""
    values = array("I")
    for batch in batches:
        for shard in batch.shards:
            values.extend(shard.prompt_tokens if name == "prompt_tokens" else shard.response_tokens)
    return array("I", sorted(values))


def quantiles(values: Sequence[float]) -> dict[str, float] | None:
    """Mean, quantiles and maximum of sorted ``values``; None if there are none.

    A quantile is the nearest rank: the smallest value that at least that share does not exceed.
    """
    if not values:
        return None
    count = len(values)
    found: dict[str, float] = {"mean": sum(values) / count}
    for name, percent in _SHARES:
        found[name] = values[-(-count * percent // 100) - 1]
    found["max"] = values[-1]
    return found


def truncated_share(batches: Iterable[Batch]) -> float | None:
    """Share of the trajectories that the cap stopped, 0..1; None where nobody recorded it."""
    stopped = known = 0
    for batch in batches:
        for shard in batch.shards:
            if shard.truncated is not None:
                stopped += sum(map(bool, shard.truncated))
                known += len(shard.truncated)
    return stopped / known if known else None
