"""What each device did in each stage, from what was read of it, by integrals over time.

Every counter is an amount that grows over pieces of time: what counts up by itself, a share times
the window it is the mean of, a reading between two readings. What a device did from one moment to
another is the difference of two sums, and how much of that time was read is known beside it. A
reading is not extended beyond what it tells: a piece is left out where a counter went back, or
where nothing was read for five periods. A counter that counts up by itself goes on meanwhile: such
a gap counts where neither end of a stage lies in it.

Inside of a piece an amount grows as :mod:`rlvr_probe.model.readings` has it for ``show``; the tests
hold one against the other.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.islands import islands
from rlvr_probe.analysis.statements import fill, make, statements
from rlvr_probe.model import names
from rlvr_probe.model.counters import COUNTERS
from rlvr_probe.recording.tables import Tables

__all__ = ["MEANS", "RATES", "TABLES", "integrate"]

_SQL: Final = statements(__name__)

MEANS: Final = (
    "engine_active", "sm_active", "sm_occupancy", "tensor_active", "dram_active", "utilization",
    "memory_b", "power_w", "sm_clock_hz", "temperature_c",
)  # fmt: skip
"""Counters that have a mean."""

RATES: Final = ("energy_j", "throttle_thermal_s", "throttle_power_s")
"""Counters that count up."""

_LEAVES: Final = tuple(one for one in ("step", *names.STAGES) if one != names.WAIT.name)
_KINDS: Final = {
    kind: ", ".join(f"'{one.name}'" for one in COUNTERS if one.kind == kind)
    for kind in ("total", "window", "gauge")
}
_USED: Final = ", ".join(f"'{one}'" for one in (*MEANS, *RATES))
_LIST: Final = ", ".join(f"'{one}'" for one in _LEAVES)


def _apart(rows: str, keys: str) -> str:
    return fill(_SQL["apart"], keys=keys, islands=islands(rows, keys))


def _stages() -> str:
    spans = _apart(fill(_SQL["spans"], leaves=_LIST), "step_id, stage, owner")
    return _apart(fill(_SQL["stages"], spans_apart=spans), "step_id, stage, device")


TABLES: Final = {
    **_SQL.derived("works_on", "owned"),
    "device_stage": (
        "a stage of a finished step on a GPU, once where processes share it", _stages(),
    ),
    **_SQL.derived("counter_piece", used=_USED, **_KINDS),
    **_SQL.derived("device_use"),
}  # fmt: skip
"""By name: what a row is, and the query that makes it."""


def integrate(tables: Tables) -> None:
    """Make the tables of :data:`TABLES`."""
    make(tables, TABLES)
