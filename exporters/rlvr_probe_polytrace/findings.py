"""Collects problems: every one is counted, a few of each kind per file are kept."""

from __future__ import annotations

import json
import math
import re

from rlvr_probe.exporter import Problem

__all__ = ["Findings", "shown"]

_SHOWN = 5
_TEXT = 80


def shown(value: object) -> str:
    """``value`` as short ASCII text, whatever it is."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key that puts step 2 before step 10. Digits stay text: a name may hold thousands."""
    return tuple(
        (len(part.lstrip("0")) if part.isdecimal() else 0, part)
        for part in re.split(r"(\d+)", name)
    )


class Findings:
    """Problems of one directory.

    Per file and kind the first five are kept; the rest become one line with their number.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[str, float, int, Problem]] = []
        self._counts: dict[tuple[str, str], int] = {}
        self._last: dict[tuple[str, str], Problem] = {}
        self.errors = 0
        """Problems that are no warnings, kept or not."""

    def add(
        self,
        kind: str,
        file: str,
        line: int | None,
        field: str | None,
        found: str,
        expected: str,
        *,
        warning: bool = False,
    ) -> None:
        """Count one problem of ``kind``, a short name that is the same for all its like."""
        key = (file, kind)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        self.errors += not warning
        problem = Problem(file, line, field, found, expected, warning)
        if count <= _SHOWN:
            # What concerns the file as a whole is often seen last, and explains the most.
            self._kept.append((file, -1 if line is None else line, len(self._kept), problem))
        else:
            self._last[key] = problem

    def problems(self) -> list[Problem]:
        """What was found, by file, then line."""
        rows = list(self._kept)
        for key, last in self._last.items():
            more = self._counts[key] - _SHOWN
            rest = Problem(
                last.file, None, last.field, f"{more} more like this", last.expected, last.warning
            )
            rows.append((last.file, math.inf, len(rows), rest))
        rows.sort(key=lambda row: (_natural(row[0]), row[1], row[2]))
        return [row[3] for row in rows]
