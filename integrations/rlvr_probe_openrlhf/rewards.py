"""Rewards of a batch: as its samples came with them, or as a reward model gave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlvr_probe.adapter import Probe
from rlvr_probe.model.names import REWARDS
from rlvr_probe.reading import attribute, rewards
from rlvr_probe_openrlhf.reading import reward_of
from rlvr_probe_openrlhf.session import reward_function

__all__ = ["scores_of", "tell_rewards"]


def tell_rewards(probe: Probe, owner: Any, span: int, given: Sequence[float | None]) -> None:
    """Record the rewards of a batch.

    Args:
        probe: To record with.
        owner: A trainer or a generator, which has the settings.
        span: Rollout span of the batch.
        given: By row.
    """
    values = {
        "batch": span,
        "function": reward_function(attribute(owner, "args")),
        "index": 0,
        **rewards(given),
    }
    probe.emit(REWARDS, values, parent=span)


def scores_of(batches: Any, rows: int) -> list[float | None] | None:
    """What a reward model gave each row; None if that is not known of every row.

    Args:
        batches: Experiences of several rows each, with ``index``: which rows they are.
        rows: How many there are.
    """
    if not isinstance(batches, list):
        return None
    found = dict[int, float | None]()
    for one in batches:
        given, index = attribute(one, "rewards"), attribute(one, "index")
        on_host = attribute(given, "device", "type") == "cpu" and attribute(given, "ndim") == 1
        if not on_host or not isinstance(index, list) or len(index) != len(given):
            return None
        found |= zip(index, map(reward_of, given.tolist()), strict=True)
    return [found[row] for row in range(rows)] if sorted(found) == list(range(rows)) else None
