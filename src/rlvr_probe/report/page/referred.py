"""Who is behind the ids that figures and causes carry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rlvr_probe.recording.tables import Tables

__all__ = ["referred"]

_TRAJECTORY: Final = (
    "SELECT trajectory_id, number, grp, sample, prompt_tokens, trajectory.response_tokens, engine"
    " FROM trajectory LEFT JOIN step USING (step_id)"
    " WHERE trajectory_id IN (SELECT unnest(?::BIGINT[])) ORDER BY trajectory_id"
)
_PROCESS: Final = (
    "SELECT process, key, rank, role, host, pid FROM process"
    " WHERE process IN (SELECT unnest(?::BIGINT[])) ORDER BY process"
)
_DEVICE: Final = (
    "SELECT device, uuid, model, host FROM device WHERE device IN (SELECT unnest(?::BIGINT[]))"
)
_STEP: Final = (
    "SELECT step_id, number, attempt, (end_ns - start_ns) / 1e9 FROM step"
    " WHERE step_id IN (SELECT unnest(?::BIGINT[])) ORDER BY step_id"
)
_QUERIES: Final = {
    "trajectory": (_TRAJECTORY, ("step", "group", "sample", "prompt", "response", "engine")),
    "process": (_PROCESS, ("key", "rank", "role", "host", "pid")),
    "device": (_DEVICE, ("uuid", "model", "host")),
    "step": (_STEP, ("number", "attempt", "seconds")),
}


def referred(tables: Tables, ids: Mapping[str, Iterable[int]]) -> dict[str, dict[str, Any]]:
    """What is known of each id, by kind."""
    found = dict[str, dict[str, Any]]()
    for kind, (sql, names) in _QUERIES.items():
        asked = sorted(set(ids.get(kind, ())))
        if asked:
            rows = tables.sql.execute(sql, [asked]).fetchall()
            found[kind] = {
                str(row[0]): {
                    name: value for name, value in zip(names, row[1:], strict=True)
                    if value is not None
                }
                for row in rows
            }  # fmt: skip
    return found
