"""What a table is: columns that each have a meaning and a unit, and the SQL that makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Column", "Table"]


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
