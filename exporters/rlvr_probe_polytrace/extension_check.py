"""Checks of ``x_rlvr``, which PolyTrace ignores: its version, and how many values it has."""

from __future__ import annotations

from collections.abc import Mapping

from rlvr_probe_polytrace.fields import Place, is_integer
from rlvr_probe_polytrace.findings import shown
from rlvr_probe_polytrace.layout import SCHEMA_VERSION

__all__ = ["check_extension", "check_trajectory_extension"]

_MAX_FIELD = 60
"""Longest field name taken over from a file into a report, characters."""


def check_extension(place: Place, value: object, n: int) -> None:
    """Check that of a prompt: of our version, and every list as long as ``output``."""
    found = _versioned(place, value)
    for key, item in found.items():
        columns = item.items() if isinstance(item, dict) else [(None, item)]
        for name, column in columns:
            if isinstance(column, list) and len(column) != n:
                field = key if name is None else f"{key}.{name}"
                _report(place, field, len(column), f"{n}, one per sample")


def check_trajectory_extension(place: Place, record: Mapping[str, object]) -> None:
    """Check that of a trajectory: one value per turn and per tool call, and the same sample."""
    found = _versioned(place, record["x_rlvr"])
    for key, of in (
        ("turn_start_s", "turns"),
        ("tool_start_s", "tool_calls"),
        ("tool_status", "tool_calls"),
    ):
        column, items = found.get(key), record[of]
        if isinstance(column, list) and isinstance(items, list) and len(column) != len(items):
            _report(place, key, len(column), f"{len(items)}, as many as {of}")
    offset = found.get("rollout_offset")
    if is_integer(offset):
        place.equal(found, "rollout_offset", record["sample_id"], ", sample_id")


def _versioned(place: Place, value: object) -> dict[str, object]:
    """The object, or an empty one and a problem."""
    if not isinstance(value, dict):
        place.report("extension", None, shown(value), "an object")
        return {}
    version = value.get("v")
    if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
        place.report("extension", "v", shown(version), f"a version from 1 to {SCHEMA_VERSION}")
        return {}
    return value


def _report(place: Place, field: str, found: int, expected: str) -> None:
    place.report("extension", ascii(field)[1:-1][:_MAX_FIELD], f"{found} values", expected)
