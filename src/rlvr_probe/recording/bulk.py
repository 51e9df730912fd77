"""Brings rows from Python into tables, many at a time.

DuckDB takes a row in half a millisecond where it is inserted by itself. A file of columns in JSON,
some thousand rows to a line, takes about a microsecond for each, and needs nothing that is not
there anyway.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from rlvr_probe.recording.columns import Table

if TYPE_CHECKING:
    import duckdb

__all__ = ["Bulk", "real"]

_ROWS: Final = 4_096
"""Rows to a line."""

_LEAST_B: Final = 256 * 1024
"""Lines that DuckDB makes room for at least, bytes: it takes a multiple of that for each file."""

_TOGETHER_B: Final = 8 * 1024 * 1024
"""Columns of one table that are loaded at a time, bytes: they are in memory until then."""


def real(value: float | None) -> float | str | None:
    """``value`` as a column of JSON holds it for a DOUBLE: as text where it is no number."""
    return "NaN" if value != value else value


class Bulk:
    """Gathers rows of tables; a thread of its own loads them, and :meth:`finish` waits for it."""

    def __init__(self, sql: duckdb.DuckDBPyConnection) -> None:
        """Gather rows for the tables of ``sql``."""
        self._sql = sql
        self._waiting: dict[str, list[Sequence[Any]]] = {}
        self._files: dict[str, _File] = {}
        self._loads: list[Future[None]] = []
        self._pool: ThreadPoolExecutor | None = None
        self._encode = msgspec.json.Encoder().encode

    def add(self, table: Table, rows: Iterable[Sequence[Any]]) -> None:
        """Take rows, each with a value for every column of ``table``."""
        self._file(table)
        waiting = self._waiting.setdefault(table.name, [])
        for row in rows:
            waiting.append(row)
            if len(waiting) == _ROWS:
                self._transpose(table)

    def add_columns(self, table: Table, values: Mapping[str, Any], **same: int) -> None:
        """Take rows in columns.

        Args:
            table: What they are rows of.
            values: Columns of equal length; those that are missing or None are unknown.
            **same: What all of them have; a column that is once given so always is.
        """
        known = {name: column for name, column in values.items() if column is not None}
        file = self._file(table)
        file.same |= same.keys()
        size = max(map(len, known.values()))
        for begin in range(0, size, _ROWS):
            slices = {name: column[begin : begin + _ROWS] for name, column in known.items()}
            file.write(self._line({**same, **slices}), (*same, *slices))
        if file.size_b > _TOGETHER_B:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "rlvr-probe-tables")
            self._loads.append(self._pool.submit(self._load_beside, *file.take()))

    def finish(self) -> None:
        """Put all rows into their tables, those of one table in the order in which they came."""
        try:
            for name, waiting in self._waiting.items():
                if waiting:
                    self._transpose(self._files[name].table)
            loads, self._loads = self._loads, []
            for load in loads:
                load.result()
            for file in self._files.values():
                if file.size_b:
                    _load(self._sql, *file.take())
        finally:
            for file in self._files.values():
                file.close()
            self._waiting.clear()
            self._files.clear()

    def close(self) -> None:
        """Give up what is not loaded yet."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for file in self._files.values():
            file.close()

    def _file(self, table: Table) -> _File:
        file = self._files.get(table.name)
        if file is None:
            file = self._files[table.name] = _File(table)
        return file

    def _transpose(self, table: Table) -> None:
        waiting = self._waiting[table.name]
        columns = dict(zip(table.names, zip(*waiting, strict=True), strict=True))
        self._files[table.name].write(self._line(columns), columns)
        waiting.clear()

    def _line(self, columns: Mapping[str, Any]) -> bytes:
        try:
            return self._encode(columns)
        except UnicodeEncodeError:
            sound = {
                name: list(map(_sound, one)) if isinstance(one, Sequence) else one
                for name, one in columns.items()
            }
            return self._encode(sound)

    def _load_beside(self, statement: str, file: IO[bytes]) -> None:
        with self._sql.cursor() as sql:
            sql.execute("SET enable_progress_bar = false")
            _load(sql, statement, file)


def _load(sql: duckdb.DuckDBPyConnection, statement: str, file: IO[bytes]) -> None:
    with file:
        path = f"/proc/self/fd/{file.fileno()}" if isinstance(file.name, int) else file.name
        sql.execute(statement, [path])


class _File:
    """Columns of one table that are not loaded yet.

    Attributes:
        same: Names of those of which a line has one value.
        size_b: How much they take, bytes.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.size_b = 0
        self.same = set[str]()
        self._longest_b = 0
        self._names = dict[str, None]()
        self._file: IO[bytes] | None = None

    def write(self, line: bytes, names: Iterable[str]) -> None:
        if self._file is None:
            self._file = _opened()
        self._file.write(line + b"\n")
        self.size_b += len(line)
        self._longest_b = max(self._longest_b, len(line))
        self._names.update(dict.fromkeys(names))

    def take(self) -> tuple[str, IO[bytes]]:
        """The statement that loads what was written, and the file that it takes."""
        file, self._file = self._file, None
        if file is None:
            raise ValueError(f"no row of {self.table.name} was written")
        file.flush()
        known = [column for column in self.table.columns if column.name in self._names]
        types = ", ".join(
            f"\"{column.name}\": '{column.type}{'' if column.name in self.same else '[]'}'"
            for column in known
        )
        names = ", ".join(f'"{column.name}"' for column in known)
        values = ", ".join(
            f'"{column.name}"' if column.name in self.same else f'unnest("{column.name}")'
            for column in known
        )
        size_b = max(_LEAST_B, self._longest_b + 1_024)
        self.size_b = self._longest_b = 0
        return (
            f"INSERT INTO {self.table.name} ({names}) SELECT {values} FROM read_json(?, format ="
            f" 'newline_delimited', columns = {{{types}}}, maximum_object_size = {size_b})"
        ), file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _opened() -> IO[bytes]:
    """An empty file with a path, in memory where that can be: the disk may be full."""
    try:
        return os.fdopen(os.memfd_create("rlvr-probe"), "w+b")
    except (AttributeError, OSError):
        return tempfile.NamedTemporaryFile(prefix="rlvr-probe-tables-")


def _sound(value: Any) -> Any:
    """A text without halves of surrogate pairs, which no file can hold."""
    return value.encode("utf-8", "replace").decode() if type(value) is str else value
