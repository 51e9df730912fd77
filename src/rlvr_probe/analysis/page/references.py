"""Who is behind the ids that figures and causes carry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rlvr_probe.analysis.results import query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["referred"]

_SQL: Final = statements(__name__)
_KINDS: Final = ("trajectory", "process", "device", "step")


def referred(tables: Tables, ids: Mapping[str, Iterable[int]]) -> dict[str, dict[str, Any]]:
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
