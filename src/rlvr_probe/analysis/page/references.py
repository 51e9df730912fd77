"""Who is behind the ids that figures and causes carry, on how many hosts, and what was lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rlvr_probe.analysis.results import query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["hosts", "lost", "references"]

_SQL: Final = statements(__name__)
_KINDS: Final = ("trajectory", "process", "device", "step")


def references(tables: Tables, ids: Mapping[str, Iterable[int]]) -> dict[str, dict[str, Any]]:
    """What is known of each id, by kind."""
    found = dict[str, dict[str, Any]]()
    for kind in _KINDS:
        asked = sorted(set(ids.get(kind, ())))
        if asked:
            answer = query(tables, _SQL[kind], ids=asked)
            found[kind] = {
                str(row[0]): {
                    name: value
                    for name, value in zip(answer.columns[1:], row[1:], strict=True)
                    if value is not None
                }
                for row in answer.rows
            }
    return found


def hosts(tables: Tables) -> int:
    """How many hosts its processes ran on."""
    [[count]] = tables.sql.execute(_SQL["hosts"]).fetchall()
    return int(count)


def lost(tables: Tables) -> list[tuple[Any, ...]]:
    """Reasons, and how many records were lost for each; the most first."""
    return tables.sql.execute(_SQL["lost"]).fetchall()
