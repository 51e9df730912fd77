"""What a table is: columns that each have a meaning and a unit, and the SQL that makes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

__all__ = ["Column", "Table", "tables_of"]

_TABLE: Final = re.compile(
    r"^((?:-- .*\n)+)CREATE TABLE (\w+) \(\n((?:    .*\n)+)\);$", re.MULTILINE
)
_COLUMN: Final = re.compile(
    r'"?(\w+)"? ([A-Z]+(?:\[\])?)(?:,|$| )(?: *-- (?:\[(.*?)\] )?(.*))?', re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: In SQL without quotes, ``row`` excepted.
        type: Of DuckDB.
        meaning: A sentence.
        unit: ``ns``, ``s``, ``tokens`` or ``B``; empty for what has none.
    """

    name: str
    type: str
    meaning: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes:
        meaning: What one row is, a sentence.
    """

    name: str
    meaning: str
    columns: Sequence[Column]

    @property
    def names(self) -> tuple[str, ...]:
        """Of its columns, in their order."""
        return tuple(column.name for column in self.columns)

    @property
    def ddl(self) -> str:
        """The statement that makes it."""
        columns = ", ".join(f'"{column.name}" {column.type}' for column in self.columns)
        return f"CREATE TABLE {self.name} ({columns})"


def tables_of(package: str, file: str) -> Mapping[str, Table]:
    """The tables that a file of ``CREATE TABLE`` makes, by name, in its order.

    A comment in front of one says what a row is. One behind a column says what that is, after its
    unit in brackets.
    """
    text = files(package).joinpath(file).read_text(encoding="utf-8")
    return {
        name: Table(
            name,
            " ".join(line.removeprefix("-- ") for line in meaning.splitlines()),
            [Column(one, kind, what, unit) for one, kind, unit, what in _COLUMN.findall(columns)],
        )
        for meaning, name, columns in _TABLE.findall(text)
    }
