"""Values of a recording as they may stand in a page, and their units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

__all__ = ["SHARES", "clean", "cleaned", "drawn", "embedded", "unit_of"]

_LONGEST: Final = 20_000
"""Characters of one text; the longest that is meant is a query."""

_UNSEEN: Final = "\ufffd"

_SHARE: Final = "share"
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
        "lengths.response.by_step:at_cap", "lengths.source.truncated",
        "lengths.loss_share", "lengths.turn.cached_share", "lengths.turn.by_turn:cached_share",
        "movement.call.dispatch_share", "movement.weight_sync.share",
        "occupancy.mean", "occupancy.under_10", "occupancy.under_25", "occupancy.under_50",
        "occupancy.least", "occupancy.most", "occupancy.by_lengths", "occupancy.queue_share",
        *(f"occupancy.length_idle.{end}" for end in _SPREAD),
        *(f"occupancy.by_batch:{share}" for share in ("mean", "under_10", "under_25", "under_50")),
        *(f"occupancy.profile:{share}" for share in ("mean", "p10", "p90")),
        "occupancy.length_idle.by_batch:length_idle",
        "rewards.function.share", "rewards.function.queue_share", "rewards.wait_share",
        "rewards.function.before_share", "rewards.function.after_share",
        "rewards.trajectory_share",
        *(
            f"signal.{mode}.{share}"
            for mode in ("training", "evaluation", "training.source", "evaluation.source")
            for share in ("same", "same_first", "same_last", "not_finite", "missing")
        ),
        *(
            f"signal.{mode}.{share}"
            for mode in ("training", "evaluation")
            for share in (
                "untrained", "untrained_first", "untrained_last", "by_step:same_groups",
                "by_step:not_finite", "by_step:missing",
            )
        ),
        "tools.tool.share", "tools.trajectory_share",
    }
)  # fmt: skip
"""Numbers without a unit that are shares of something, 0..1, which a page writes in percent.

Ids of figures, and of series with the column behind a colon.
"""


def clean(text: object) -> str:
    """``text`` without what is invisible: control characters, marks that turn text around."""
    shown = "".join(
        char if char.isprintable() or char == "\n" else _UNSEEN
        for char in str(text)[: _LONGEST + 1]
    )
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def cleaned(value: Any) -> Any:
    """``value`` as JSON may hold it, every text in it clean.

    Raises:
        TypeError: It is nothing that JSON has.
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, (float, Decimal)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [cleaned(item) for item in value]
    raise TypeError(f"{value!r} cannot be in a page; expected what JSON has")


def drawn(value: Any) -> Any:
    """A number of a chart: six digits are more than the eye sees."""
    value = cleaned(value)
    if isinstance(value, list):
        return [drawn(item) for item in value]
    if not isinstance(value, float):
        return value
    value = float(f"{value:.6g}")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def embedded(text: str) -> str:
    """JSON as it may stand in an element of a page: nothing in it ends the element."""
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def unit_of(name: str, unit: str) -> str:
    """The unit of a figure, or of ``series:column``, on the page."""
    return _SHARE if unit == "1" and name in SHARES else unit
