"""Collects problems: every one is counted, a few of each kind per file are kept."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TypeVar

from msgspec import ValidationError, convert

from rlvr_probe.exporter import Problem

__all__ = ["Findings", "Location", "shown"]

_T = TypeVar("_T")

_SHOWN = 5
_TEXT = 80
_MISFIT = re.compile(r"(?:Expected )?(.*?)(?:, got \S+)?(?: - at `\$(.*)`)?", re.DOTALL)
"""What msgspec says of a value that does not fit: what was expected, and the path."""
_MISSING = re.compile(r"Object missing required field `(\w+)`")


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
        """Problems other than warnings, kept or not."""

    def add(self, kind: str, problem: Problem) -> None:
        """Count one problem of ``kind``, a short name that is the same for all its like."""
        key = (problem.file, kind)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        self.errors += not problem.warning
        if count <= _SHOWN:
            # What concerns the file as a whole is often seen last, and explains the most.
            line = -1 if problem.line is None else problem.line
            self._kept.append((problem.file, line, len(self._kept), problem))
        else:
            self._last[key] = problem

    def problems(self) -> list[Problem]:
        """All problems, by file, then line."""
        rows = list(self._kept)
        for key, last in self._last.items():
            more = f"{self._counts[key] - _SHOWN} more like this"
            rest = Problem(last.file, None, last.field, more, last.expected, last.warning)
            rows.append((last.file, math.inf, len(rows), rest))
        rows.sort(key=lambda row: (_natural(row[0]), row[1], row[2]))
        return [row[3] for row in rows]


@dataclass(frozen=True, slots=True)
class Location:
    """A file, a line of it, or an object in it: where a problem is."""

    findings: Findings
    file: str
    line: int | None = None
    prefix: str = ""

    def report(
        self, kind: str, field: str | None, found: object, expected: str, *, warning: bool = False
    ) -> None:
        """Add a problem; a ``found`` other than a text is shortened into one."""
        text = found if isinstance(found, str) else shown(found)
        name = self.prefix.rstrip(".") if field is None else self.prefix + field
        problem = Problem(self.file, self.line, name or None, text, expected, warning)
        self.findings.add(kind, problem)

    def within(self, field: str) -> Location:
        """The location of an object inside this one."""
        return Location(self.findings, self.file, self.line, f"{self.prefix}{field}.")

    def equal(self, field: str, value: object, expected: object, why: str = "") -> bool:
        """Whether ``field`` has the ``expected`` value; ``why`` ends the sentence if not."""
        if value == expected:
            return True
        self.report(f"value of {field}", field, shown(value), f"{shown(expected)}{why}")
        return False

    def convert(self, value: object, kind: type[_T]) -> _T | None:
        """``value`` as a record, or None and a problem that names the path of what does not fit."""
        try:
            return convert(value, kind)
        except UnicodeEncodeError:
            self.report("key", None, "a key with half a surrogate pair", "Unicode")
        except ValidationError as error:
            message = str(error)
            match = _MISFIT.fullmatch(message)
            expected, path = match.groups(default="") if match else (message, "")
            field = path.removeprefix(".")
            missing = _MISSING.match(message)
            if missing:
                field = f"{field}.{missing[1]}".removeprefix(".")
                self.report("keys", field, "no such key", "a value")
            else:
                for key, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
                    value = value[int(index) if index else key]  # type: ignore[index]
                kind_of = re.sub(r"\[\d+\]", "", field)
                expected = expected.replace("`", "")
                self.report(f"type of {kind_of}", field or None, shown(value), expected)
        return None
