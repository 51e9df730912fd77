"""Every table of a recording, and the SQL that fills them: files beside the modules that ask it.

``tables/tables.sql`` has the tables that the analysis asks its questions of. Times are ns on the
clock of the run: 0 is the start of its first process. Unknown is NULL, never 0. Steps that were
thrown away are in the tables; the views of :data:`VIEWS` omit them. ``fine/tables.sql`` has those
that fine rows go to until they are joined.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

__all__ = [
    "AS_IT_IS", "BY_NAME", "SEGMENT_ROW", "STAGING", "TABLES", "VIEWS", "Column", "Table",
    "literal", "statements", "tables_of",
]  # fmt: skip

_TABLE: Final = re.compile(
    r"^((?:-- .*\n)+)CREATE TABLE (\w+) \(\n((?:    .*\n)+)\);$", re.MULTILINE
)
_COLUMN: Final = re.compile(
    r'"?(\w+)"? ([A-Z]+(?:\[\])?)(?:,|$| )(?: *-- (?:\[(.*?)\] )?(.*))?', re.MULTILINE
)
_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


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


def _text(package: str, file: str) -> str:
    return files(package).joinpath(file).read_text(encoding="utf-8")


def tables_of(package: str, file: str) -> tuple[Table, ...]:
    """The tables that a file of ``CREATE TABLE`` makes, in its order.

    A comment in front of one says what a row is. One behind a column says what that is, after its
    unit in brackets.
    """
    return tuple(
        Table(
            name,
            " ".join(line.removeprefix("-- ") for line in meaning.splitlines()),
            [Column(name, kind, what, unit) for name, kind, unit, what in _COLUMN.findall(columns)],
        )
        for meaning, name, columns in _TABLE.findall(_text(package, file))
    )


@cache
def statements(package: str, file: str) -> Mapping[str, str]:
    """The statements of a file by name, each after a line ``-- name: ...``."""
    _, *parts = _NAME.split(_text(package, file))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def literal(text: object) -> str:
    """A text, or a path, in SQL."""
    return "'" + str(text).replace("'", "''") + "'"


TABLES: Final = tables_of("rlvr_probe.recording", "tables/tables.sql")
"""In the order of the documentation."""

STAGING: Final = tables_of("rlvr_probe.recording", "fine/tables.sql")
"""Fine rows as they are, and what joins them."""

(SEGMENT_ROW,) = tables_of("rlvr_probe.recording", "compacted/tables.sql")
"""What a compacted segment holds."""

BY_NAME: Final = {table.name: table for table in (*TABLES, *STAGING)}

AS_IT_IS: Final = "hive_partitioning = false"
"""How Parquet is read: a folder above it, such as ``turn=3``, gives no column a value."""

_SUPERSEDED: Final = "SELECT step_id FROM step WHERE superseded_by IS NOT NULL"

VIEWS: Final = {
    "kept_step": "SELECT * FROM step WHERE superseded_by IS NULL",
    **{
        f"kept_{table}": f"SELECT * FROM {table} WHERE step_id IS NULL OR step_id NOT IN"
        f" ({_SUPERSEDED})"
        for table in ("span", "rpc", "batch", "trajectory")
    },
}
"""By name: the rows of a table that belong to no step that was thrown away."""
