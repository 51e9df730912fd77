"""Which numbers without a unit are shares of something, 0..1, which a page writes in percent."""

from __future__ import annotations

from typing import Final

__all__ = ["SHARE", "SHARES", "unit_of"]

SHARE: Final = "share"
"""Unit of a share on the page; everywhere else it is ``1``."""

_SPREAD: Final = ("mean", "min", "p50", "p90", "p95", "p99", "max")

SHARES: Final = frozenset(
    {
        "asynchronous.mixed", "asynchronous.unused", "asynchronous.trainer_wait",
        "asynchronous.rollout_wait",
        "devices.stage.known", "devices.stage.engine_active", "devices.stage.sm_active",
        "devices.stage.sm_occupancy", "devices.stage.tensor_active", "devices.stage.dram_active",
        "devices.stage.utilization", "devices.stage.throttle_thermal",
        "devices.stage.throttle_power", "devices.stage.busy_but_idle",
        "devices.gpu.sm_active", "devices.gpu.utilization", "devices.gpu.throttle_thermal",
        "devices.by_step:sm_active",
        "ledger.share",
        "lengths.filter.kept_share", "lengths.filter.used_share", "lengths.filter.unused_tokens",
        "lengths.response.at_cap", "lengths.response.at_longest", "lengths.response.truncated",
        "lengths.response.by_step:at_cap",
        "lengths.loss_share", "lengths.turn.cached_share", "lengths.turn.by_turn:cached_share",
        "movement.call.dispatch_share", "movement.weight_sync.share",
        "occupancy.mean", "occupancy.under_10", "occupancy.under_25", "occupancy.under_50",
        "occupancy.least", "occupancy.most", "occupancy.by_lengths", "occupancy.queue_share",
        *(f"occupancy.length_idle.{end}" for end in _SPREAD),
        *(f"occupancy.by_batch:{one}" for one in ("mean", "under_10", "under_25", "under_50")),
        *(f"occupancy.profile:{one}" for one in ("mean", "p10", "p90")),
        "occupancy.length_idle.by_batch:length_idle",
        "rewards.function.share", "rewards.function.queue_share", "rewards.wait_share",
        "rewards.function.before_share", "rewards.function.after_share",
        "rewards.trajectory_share",
        "tools.tool.share", "tools.trajectory_share",
    }
)  # fmt: skip
"""Ids of figures, and of series with the column behind a colon."""


def unit_of(name: str, unit: str) -> str:
    """The unit of a figure, or of ``series:column``, on the page."""
    return SHARE if unit == "1" and name in SHARES else unit
