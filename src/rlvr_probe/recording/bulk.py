"""Brings rows from Python into tables, many at a time.

DuckDB takes a row in half a millisecond where it is inserted by itself. A temporary file of columns
in JSON, a few thousand rows to a line, takes about a microsecond for each, and needs nothing that
is not there anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import duckdb
import msgspec

from rlvr_probe.recording.columns import Table

__all__ = ["Bulk", "real"]

_ROWS: Final = 4_096
"""Rows to a line."""

_LEAST_B: Final = 16 * 1024 * 1024
"""Longest line that DuckDB takes by itself, bytes."""


def real(value: float | None) -> float | str | None:
    """``value`` as a column of JSON holds it for a DOUBLE: as text where it is no number."""
    return "NaN" if value != value else value


class Bulk:
    """Gathers rows of tables; :meth:`finish` puts them there."""

    def __init__(self, sql: duckdb.DuckDBPyConnection, folder: Path) -> None:
        """Gather rows for the tables of ``sql``, with files in ``folder``, which is private."""
        self._sql = sql
        self._folder = folder
        self._waiting: dict[str, list[Sequence[Any]]] = {}
        self._files: dict[str, BinaryIO] = {}
        self._longest: dict[str, int] = {}
        self._tables: dict[str, Table] = {}
        self._encode = msgspec.json.Encoder().encode

    def add(self, table: Table, rows: Iterable[Sequence[Any]]) -> None:
        """Take rows, each with a value for every column of ``table``."""
        waiting = self._waiting.setdefault(table.name, [])
        self._tables[table.name] = table
        for row in rows:
            waiting.append(row)
            if len(waiting) == _ROWS:
                self._write(table, waiting)
                waiting.clear()

    def finish(self) -> None:
        """Put all rows into their tables, in the order in which they came."""
        for name, waiting in self._waiting.items():
            if waiting:
                self._write(self._tables[name], waiting)
        self._waiting.clear()
        for file in self._files.values():  # all, since one that cannot be loaded ends this
            file.close()
        for name, file in self._files.items():
            self._load(self._tables[name], Path(file.name), self._longest[name])
            Path(file.name).unlink()
        self._files.clear()

    def _write(self, table: Table, rows: Sequence[Sequence[Any]]) -> None:
        columns = dict(zip(table.names, zip(*rows, strict=True), strict=True))
        try:
            line = self._encode(columns)
        except UnicodeEncodeError:
            line = self._encode({name: tuple(map(_sound, one)) for name, one in columns.items()})
        if table.name not in self._files:
            self._files[table.name] = (self._folder / f"{table.name}.json").open("wb")
        self._files[table.name].write(line + b"\n")
        self._longest[table.name] = max(self._longest.get(table.name, 0), len(line))

    def _load(self, table: Table, path: Path, longest_b: int) -> None:
        types = ", ".join(f"\"{column.name}\": '{column.type}[]'" for column in table.columns)
        columns = ", ".join(f'unnest("{name}")' for name in table.names)
        self._sql.execute(
            f"INSERT INTO {table.name} SELECT {columns} FROM read_json(?, format ="
            f" 'newline_delimited', columns = {{{types}}}, maximum_object_size = ?)",
            [str(path), max(_LEAST_B, longest_b + 1_024)],
        )


def _sound(value: Any) -> Any:
    """A text without halves of surrogate pairs, which no file can hold."""
    return value.encode("utf-8", "replace").decode() if type(value) is str else value
