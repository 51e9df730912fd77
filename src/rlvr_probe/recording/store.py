"""A database for the rows of a run while it is read, and what brings rows there, many at a time.

DuckDB takes a row in half a millisecond where it is inserted by itself. A file of columns in JSON,
some thousand rows to a line, takes about a microsecond for each, and needs nothing that is not
there anyway.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.recording.schema import BY_NAME, STAGING, Table

if TYPE_CHECKING:
    import duckdb

__all__ = ["Bulk", "FineStore", "no_collection", "real"]

_ROWS: Final = 4_096
"""Rows to a line."""

_LEAST_B: Final = 256 * 1024
"""Lines that DuckDB makes room for at least, bytes: it takes a multiple of that for each file."""

_TOGETHER_B: Final = 8 * 1024 * 1024
"""Columns of one table that are loaded at a time, bytes: they are in memory until then."""

_HELD: Final = 64
"""Files that are kept open."""

_encode: Final = msgspec.json.Encoder().encode


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage collection: rows hold no cycles, and it looks at each of a million of them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


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

    def add_columns(self, table: str, values: Mapping[str, Any], **same: int) -> None:
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
        path = f"/proc/self/fd/{file.fileno()}" if isinstance(file.name, int) else file.name
        sql.execute(statement, [path])


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
            self._file = _opened()
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
        names, types, values = list[str](), list[str](), list[str]()
        for column in self._table.columns:
            if column.name in self._names:
                single = column.name in self.same
                names.append(f'"{column.name}"')
                types.append(f"\"{column.name}\": '{column.type}{'' if single else '[]'}'")
                values.append(names[-1] if single else f"unnest({names[-1]})")
        size_b = max(_LEAST_B, self._longest_b + 1_024)
        self.size_b = self._longest_b = 0
        return (
            f"INSERT INTO {self._table.name} ({', '.join(names)}) SELECT {', '.join(values)}"
            f" FROM read_json(?, format = 'newline_delimited', columns = {{{', '.join(types)}}},"
            f" maximum_object_size = {size_b})"
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


class FineStore:
    """Takes the fine rows of a run while it is read: Python decodes, DuckDB loads concurrently.

    Attributes:
        whole: Every table of the run is to be filled, and not only what a trace takes.
        numbers: Of each process, by its key.
        rows: How many were taken, by table.
        has_requests: Requests of engines were joined.
        is_large: There are many rows to come: millions of trajectories.
    """

    def __init__(
        self,
        threads: int | None = None,
        *,
        whole: bool = False,
        signals: bool = True,
        strict: bool = True,
    ) -> None:
        """Hold none.

        Args:
            threads: Of DuckDB; by default one for each core.
            whole: See above.
            signals: Whether Ctrl-C, and a handled SIGTERM, end queries.
            strict: Whether a row raises where DuckDB is missing; else none is taken.
        """
        self.whole = whole
        self.numbers: dict[str, int] = {}
        self.rows = Counter[str]()
        self.has_requests = self.is_large = False
        self._is_missing = find_spec("duckdb") is None
        self._strict = strict
        self._threads, self._signals = threads, signals
        self._batches = 0
        self._files: dict[str, list[tuple[str, int]]] = {}
        self._held = 0
        self._stack = ExitStack()
        self._opened: tuple[duckdb.DuckDBPyConnection, Bulk] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no process recorded a single trajectory, not even its key."""
        return self._opened is None

    @property
    def sink(self) -> FineStore | None:
        """What takes the rows: this, or nothing."""
        return None if self._is_missing and not self._strict else self

    def number(self, process: str) -> int:
        """The number of a process."""
        return self.numbers.setdefault(process, len(self.numbers))

    def open(self) -> tuple[duckdb.DuckDBPyConnection, Bulk]:
        """The database with all tables, and what brings rows there, until :meth:`close`.

        Raises:
            ProbeError: DuckDB is not installed.
        """
        if self._opened is None:
            if self._is_missing:
                raise ProbeError(
                    "this recording holds single trajectories, which are joined with duckdb, not"
                    " installed here; install with pip install 'rlvr-probe[cli]'"
                )
            from rlvr_probe.recording.tables.database import connect_tables

            sql = self._stack.enter_context(
                connect_tables(
                    self._threads, whole=self.whole, signals=self._signals, is_large=self.is_large
                )
            )
            sql.execute("; ".join(table.ddl for table in STAGING))
            self._opened = sql, Bulk(sql)
            self._stack.callback(self._opened[1].close)
        return self._opened

    def keys(self, keys: Sequence[str | None]) -> int:
        """Take the keys of the rows of a batch; their number in ``q_key``."""
        number, self._batches = self._batches, self._batches + 1
        columns = {"local": list(range(len(keys))), "key": keys}
        self.open()[1].add_columns("q_key", columns, k=number)
        return number

    def add(self, table: str, process: int, values: Mapping[str, Sequence[Any] | None]) -> None:
        """Take rows of one process for a staging table."""
        self.rows[table] += len(values["start"] or ())
        self.open()[1].add_columns(table, values, p=process)

    def hold(self, path: Path) -> Path:
        """A path of a file that is the same file even if it is moved or deleted meanwhile.

        Of the first files alone: a spool has few, and elsewhere none is moved.

        Raises:
            OSError: It cannot be opened.
        """
        if self._held == _HELD:
            return path
        self._held += 1
        file = self._stack.enter_context(path.open("rb"))
        return Path(f"/proc/self/fd/{file.fileno()}")

    def add_file(self, process: int, path: Path, rows: Mapping[str, int]) -> None:
        """Take the columns of a compacted segment of one process, from :meth:`attach_files` on.

        Args:
            process: Its number.
            path: The segment.
            rows: How many there are, by table.
        """
        self.rows.update(rows)
        for table in rows:
            self._files.setdefault(table, []).append((str(path), process))

    def attach_files(self) -> None:
        """Put the columns of all compacted segments behind the rows of their tables."""
        if self._files:
            from rlvr_probe.recording.compacted.columns import attach_columns

            sql, bulk = self.open()
            bulk.finish()
            attach_columns(sql, self._files)
            self._files = {}

    def close(self) -> None:
        """Drop everything."""
        self.__exit__(None, None, None)

    def __enter__(self) -> FineStore:
        return self

    def __exit__(self, *error: Any) -> None:
        stack, self._stack = self._stack, ExitStack()
        self._opened, self._files, self._held = None, {}, 0
        stack.__exit__(*error)
