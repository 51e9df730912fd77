"""Brings rows into a database, many at a time.

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

from rlvr_probe.recording.schema import BY_NAME, Table

if TYPE_CHECKING:
    import duckdb

__all__ = ["Bulk", "anonymous_file", "path_of", "real"]

_ROWS: Final = 4_096
"""Rows to a line."""

_LEAST_B: Final = 256 * 1024
"""Lines that DuckDB makes room for at least, bytes: it takes a multiple of that for each file."""

_TOGETHER_B: Final = 8 * 1024 * 1024
"""Columns of one table that are loaded at a time, bytes: they are in memory until then."""

_HASHES: Final = {"high": "q_high(key)", "low": "q_low(key)"}
"""Columns that are made of ``key``, by macros of ``fine/join.sql``."""

_encode: Final = msgspec.json.Encoder().encode


def real(value: float | None) -> float | str | None:
    """``value`` as a column of JSON holds it for a DOUBLE: NaN as text."""
    return "NaN" if value != value else value


class Bulk:
    """Gathers rows of tables; a thread of its own loads them, and :meth:`finish` waits for it."""

    def __init__(
        self, sql: duckdb.DuckDBPyConnection, tables: Mapping[str, Table] = BY_NAME
    ) -> None:
        """Gather rows for the tables of ``sql``, which are these."""
        self._sql = sql
        self._tables = tables
        self._files: dict[str, _File] = {}
        self._loads: list[Future[None]] = []
        self._pool: ThreadPoolExecutor | None = None

    def add(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        """Take rows, each with a value for every column of ``table``."""
        file = self._file(table)
        for row in rows:
            file.rows.append(row)
            if len(file.rows) == _ROWS:
                file.transpose()

    def add_columns(self, table: str, values: Mapping[str, Any], **same: int | str) -> None:
        """Take rows in columns.

        Args:
            table: What they are rows of.
            values: Columns of equal length; those that are missing or None are unknown.
            **same: What all of them have; a column that is once added so always is.
        """
        known = {name: column for name, column in values.items() if column is not None}
        file = self._file(table)
        file.same |= same.keys()
        size = max(map(len, known.values()))
        for begin in range(0, size, _ROWS):
            slices = {name: column[begin : begin + _ROWS] for name, column in known.items()}
            file.write({**same, **slices})
        if file.size_b > _TOGETHER_B:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "rlvr-probe-tables")
            self._loads.append(self._pool.submit(self._load_concurrently, *file.take()))

    def finish(self) -> None:
        """Put all rows into their tables, those of one table in the order in which they came."""
        try:
            for file in self._files.values():
                file.transpose()
            loads, self._loads = self._loads, []
            for load in loads:
                load.result()
            for file in self._files.values():
                if file.size_b:
                    _load(self._sql, *file.take())
        finally:
            for file in self._files.values():
                file.close()
            self._files.clear()

    def close(self) -> None:
        """Give up what is not loaded yet."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for file in self._files.values():
            file.close()

    def _file(self, table: str) -> _File:
        file = self._files.get(table)
        if file is None:
            file = self._files[table] = _File(self._tables[table])
        return file

    def _load_concurrently(self, statement: str, file: IO[bytes]) -> None:
        with self._sql.cursor() as sql:
            sql.execute("SET enable_progress_bar = false")
            _load(sql, statement, file)


def _load(sql: duckdb.DuckDBPyConnection, statement: str, file: IO[bytes]) -> None:
    with file:
        sql.execute(statement, [path_of(file)])


class _File:
    """Rows of one table that are not loaded yet, most of them as columns in a file.

    Attributes:
        rows: Those that are not columns yet.
        same: Names of the columns of which a line has one value.
        size_b: How much the columns take, bytes.
    """

    def __init__(self, table: Table) -> None:
        self.rows: list[Sequence[Any]] = []
        self.same = set[str]()
        self.size_b = 0
        self._table = table
        self._longest_b = 0
        self._names = set[str]()
        self._file: IO[bytes] | None = None

    def transpose(self) -> None:
        if self.rows:
            columns = zip(*self.rows, strict=True)
            self.write(dict(zip(self._table.names, columns, strict=True)))
            self.rows.clear()

    def write(self, columns: Mapping[str, Any]) -> None:
        if self._file is None:
            self._file = anonymous_file()
        line = _line(columns)
        self._file.write(line + b"\n")
        self.size_b += len(line)
        self._longest_b = max(self._longest_b, len(line))
        self._names.update(columns)

    def take(self) -> tuple[str, IO[bytes]]:
        """The statement that loads what was written, and the file that it takes."""
        file, self._file = self._file, None
        if file is None:
            raise ValueError(f"no row of {self._table.name} was written")
        file.flush()
        types, values, names = dict[str, str](), dict[str, str](), dict[str, str]()
        for column in self._table.columns:
            name, kind, made = column.name, column.type, f'"{column.name}"'
            if name in _HASHES:
                name, kind, made = "key", "VARCHAR", _HASHES[name]
            if name in self._names:
                single = name in self.same
                types[name] = f"\"{name}\": '{kind}{'' if single else '[]'}'"
                values[name] = f'"{name}"' if single else f'unnest("{name}") AS "{name}"'
                names[f'"{column.name}"'] = made
        size_b = max(_LEAST_B, self._longest_b + 1_024)
        self.size_b = self._longest_b = 0
        return (
            f"INSERT INTO {self._table.name} ({', '.join(names)})"
            f" SELECT {', '.join(names.values())} FROM (SELECT {', '.join(values.values())}"
            f" FROM read_json(?, format = 'newline_delimited',"
            f" columns = {{{', '.join(types.values())}}},"
            f" maximum_object_size = {size_b}))"
        ), file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def anonymous_file() -> IO[bytes]:
    """An empty file, in memory where that can be: the disk may be full."""
    try:
        return os.fdopen(os.memfd_create("rlvr-probe"), "w+b")
    except (AttributeError, OSError):
        return tempfile.NamedTemporaryFile(prefix="rlvr-probe-tables-")


def path_of(file: IO[bytes]) -> str:
    """A path of it for as long as it is open, in this process."""
    return f"/proc/self/fd/{file.fileno()}" if isinstance(file.name, int) else file.name


def _line(columns: Mapping[str, Any]) -> bytes:
    try:
        return _encode(columns)
    except UnicodeEncodeError:
        sound = {
            name: list(map(_sound, column)) if isinstance(column, Sequence) else column
            for name, column in columns.items()
        }
        return _encode(sound)


def _sound(value: Any) -> Any:
    """A text without halves of surrogate pairs, which no file can hold."""
    return value.encode("utf-8", "replace").decode() if type(value) is str else value
