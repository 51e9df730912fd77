"""A report before it is drawn: lines and tables, in no terminal's language."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "BAR",
    "Block",
    "Column",
    "Columns",
    "Grid",
    "Line",
    "Style",
    "amount",
    "bar",
    "clean",
    "count_of",
    "duration",
    "number",
    "seconds",
    "setup",
    "table",
]

BAR = "▇"

Style = Literal["plain", "title", "quiet", "alarm"]


@dataclass(frozen=True, slots=True)
class Line:
    """A paragraph."""

    text: str
    style: Style = "plain"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: heading and whether it holds numbers."""

    heading: str
    number: bool = True


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; a row of one cell runs across it."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[str]]
    style: Style = "plain"


Block = Line | Grid

Columns = Mapping[str, Callable[[Any], str]]
"""Headings of a table, and what makes a cell of an entry."""


def clean(text: object, width: int = 48) -> str:
    """``text`` from a recording, safe to print: nothing that moves a cursor, not too long."""
    shown = "".join(c if c.isprintable() else "?" for c in str(text)[: width + 1])
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def amount(value: float) -> str:
    """A length or a count for reading, with one digit behind the point where it is not whole."""
    return f"{value:,.1f}".removesuffix(".0")


def number(value: float | None, form: str = ",") -> str:
    """A number in a format of Python's; '' if unknown."""
    return "" if value is None else format(value, form)


def count_of(number: int, noun: str) -> str:
    """How many there are of something, with its noun in the singular or plural."""
    if number == 1:
        return f"1 {noun}"
    many = f"{noun[:-1]}ies" if noun.endswith("y") else noun + ("es" if noun[-1] == "s" else "s")
    return f"{number:,} {many}"


def setup(facts: Mapping[str, Any]) -> list[str]:
    """What a run trains with, as far as it is known: framework and release, algorithm."""
    parts = list[str]()
    if facts.get("framework"):
        release = clean(facts["framework_version"] or "", 16)
        parts.append(f"{clean(facts['framework'], 16)} {release}".strip())
    if facts.get("algorithm"):
        parts.append(clean(facts["algorithm"], 16).upper())
    return parts


def seconds(value: float | None) -> str:
    """A number of seconds with as many digits as say something; '' if unknown."""
    if value is None:
        return ""
    if 0 < value < 0.0005:
        return "<0.001"
    digits = 3 if value < 1 else 2 if value < 10 else 1 if value < 1000 else 0
    return f"{value:,.{digits}f}"


def duration(value: float) -> str:
    """A time span with its unit, for reading."""
    if value < 120:
        return f"{seconds(value)} s"
    minutes, hours = value / 60, value / 3600
    if minutes < 120:
        return f"{minutes:.1f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"


def bar(share: float | None, width: int = 20) -> str:
    """A share, 0..1, as a bar; '' if unknown."""
    return "" if share is None else BAR * round(min(max(share, 0.0), 1.0) * width)


def table(
    title: str,
    columns: Columns,
    entries: Iterable[Any],
    *,
    head: int,
    tail: int = 0,
    what: str,
    style: Style = "plain",
) -> list[Block]:
    """A table of the columns that say something, and of its first and last rows.

    Args:
        title: What it shows.
        columns: By heading, what makes the cell of an entry; ``<`` is in front of the heading of a
            column of texts, others hold numbers.
        entries: One for each row; without any, the table is omitted.
        head: Rows to show from the start.
        tail: Rows to show from the end.
        what: What a row is, in the plural, to say how many lie between.
        style: How loud it is.
    """
    rows = [[cell(entry) for cell in columns.values()] for entry in entries]
    if not rows:
        return []
    used = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    cells = [[row[place] for place in used] for row in rows]
    if len(cells) > head + tail + 1:
        between = [f"… {len(cells) - head - tail:,} more {what}"]
        cells = [*cells[:head], between, *cells[len(cells) - tail :]]
    names = [list(columns)[place] for place in used]
    shown = (Column(name.removeprefix("<").strip(), name[:1] != "<") for name in names)
    return [Grid(title, tuple(shown), cells, style)]
