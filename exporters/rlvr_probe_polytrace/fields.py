"""Keys and types of one JSON object, checked from a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from rlvr_probe_polytrace.findings import Findings, shown
from rlvr_probe_polytrace.layout import MAX_COUNT

__all__ = [
    "ARRAY",
    "COUNT",
    "COUNTS",
    "FLAG",
    "LENGTH",
    "LENGTHS",
    "SECONDS",
    "TEXT",
    "TOTAL",
    "Kind",
    "Place",
    "integer",
    "integers",
    "is_integer",
    "is_number",
    "number",
]


def is_integer(value: object) -> TypeGuard[int]:
    """Whether it is an integer; a boolean is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a finite number; a boolean is none."""
    if is_integer(value):
        # An integer beyond the largest float is no usable number of seconds.
        return abs(value) < 2**1000
    return isinstance(value, float) and math.isfinite(value)


def _is_count(value: object) -> bool:
    return is_integer(value) and 0 <= value <= MAX_COUNT


def _is_length(value: object) -> bool:
    return is_integer(value) and 1 <= value <= MAX_COUNT


@dataclass(frozen=True, slots=True)
class Kind:
    """What a field may hold, as a test and in words."""

    test: Callable[[object], bool]
    words: str


COUNT = Kind(_is_count, f"an integer from 0 to {MAX_COUNT}")
LENGTH = Kind(_is_length, f"an integer from 1 to {MAX_COUNT}")
TOTAL = Kind(
    lambda value: is_integer(value) and 0 <= value <= 2**63 - 1, f"an integer from 0 to {2**63 - 1}"
)
FLAG = Kind(lambda value: isinstance(value, bool), "true or false")
TEXT = Kind(lambda value: isinstance(value, str) and bool(value), "a text that is not empty")
SECONDS = Kind(lambda value: is_number(value) and value >= 0, "seconds, finite and not negative")
ARRAY = Kind(lambda value: isinstance(value, list), "an array")
COUNTS = Kind(
    lambda value: isinstance(value, list) and all(map(_is_count, value)),
    f"an array of integers from 0 to {MAX_COUNT}",
)
LENGTHS = Kind(
    lambda value: isinstance(value, list) and bool(value) and all(map(_is_length, value)),
    f"a non-empty array of integers from 1 to {MAX_COUNT}",
)


@dataclass(frozen=True, slots=True)
class Place:
    """One object in one file, as the place of what is wrong with it."""

    findings: Findings
    file: str
    line: int | None
    prefix: str = ""

    def report(
        self, kind: str, field: str | None, found: object, expected: str, *, warning: bool = False
    ) -> None:
        """Add a problem; a ``found`` that is no text is shortened into one."""
        text = found if isinstance(found, str) else shown(found)
        name = self.prefix.rstrip(".") if field is None else self.prefix + field
        self.findings.add(kind, self.file, self.line, name or None, text, expected, warning=warning)

    def within(self, field: str) -> Place:
        """The place of an object inside this one."""
        return Place(self.findings, self.file, self.line, f"{self.prefix}{field}.")

    def check(self, record: Mapping[str, object], table: Mapping[str, Kind]) -> bool:
        """Whether ``record`` has every field of ``table`` with the right kind of value."""
        sound = True
        for field, kind in table.items():
            if field not in record:
                self.report("keys", field, "no such key", kind.words)
                sound = False
            elif not kind.test(record[field]):
                self.report(f"type of {field}", field, shown(record[field]), kind.words)
                sound = False
        return sound

    def equal(
        self, record: Mapping[str, object], field: str, expected: object, why: str = ""
    ) -> bool:
        """Whether the checked ``field`` is ``expected``; ``why`` ends the sentence if not."""
        if record[field] == expected and type(record[field]) is type(expected):
            return True
        self.report(f"value of {field}", field, shown(record[field]), f"{shown(expected)}{why}")
        return False


def integer(record: Mapping[str, object], field: str) -> int:
    """A field that was checked to be an integer."""
    value = record[field]
    assert is_integer(value)  # noqa: S101 - narrows a checked value
    return value


def integers(record: Mapping[str, object], field: str) -> list[int]:
    """A field that was checked to be an array of integers."""
    value = record[field]
    assert isinstance(value, list)  # noqa: S101 - narrows a checked value
    return value


def number(record: Mapping[str, object], field: str) -> float:
    """A field that was checked to be a finite number."""
    value = record[field]
    assert is_number(value)  # noqa: S101 - narrows a checked value
    return value
