"""A database for the rows of a run while it is read: what of them is there, and from whom."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.recording.bulk import Bulk, anonymous_file, path_of
from rlvr_probe.recording.schema import AS_IT_IS, STAGING, literal, statements

if TYPE_CHECKING:
    import duckdb

__all__ = ["FineStore", "PackedRows", "no_collection"]

_HELD: Final = 64
"""Files that are kept open."""


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


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Fine rows that were taken in another process.

    Attributes:
        columns: Parquet, by table.
        files: Path, number of the process and rows by table of each compacted segment.
        rows: Rows in columns, by table.
        batches: Batches whose keys are in columns, numbered from 0.
    """

    columns: Mapping[str, bytes]
    files: Sequence[tuple[Path, int, Mapping[str, int]]]
    rows: Mapping[str, int]
    batches: int


class FineStore:
    """Takes the fine rows of a run while it is read: Python decodes, DuckDB loads concurrently.

    Attributes:
        whole: Every table of the run is to be filled, and not only what a trace takes.
        numbers: Of each process, by its key.
        rows: How many were taken, by table.
        has_requests: Requests of engines were joined.
        missing: Libraries that it needs and that are not installed here.
        size_b: Journals that its rows are of, bytes.
    """

    def __init__(
        self,
        threads: int | None = None,
        *,
        whole: bool = False,
        signals: bool = True,
        strict: bool = True,
        hold: bool = True,
    ) -> None:
        """Hold none.

        Args:
            threads: Of DuckDB; by default one for each core.
            whole: See above.
            signals: Whether Ctrl-C, and a handled SIGTERM, end queries.
            strict: Whether a row raises where a library is missing; else none is taken.
            hold: Whether files are kept open: not where another process takes their columns.
        """
        self.whole = whole
        self.numbers: dict[str, int] = {}
        self.rows = Counter[str]()
        self.has_requests, self.size_b = False, 0
        # The second hands to a trace what the first joined.
        needed = ["duckdb"] if whole else ["duckdb", "nanoarrow"]
        self.missing = [name for name in needed if find_spec(name) is None]
        self._strict = strict
        self._threads, self._signals = threads, signals
        self._batches = 0
        self._files: list[tuple[Path, int, Mapping[str, int]]] = []
        self._held, self._may_hold = 0, hold
        self._stack = ExitStack()
        self._opened: tuple[duckdb.DuckDBPyConnection, Bulk] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no process recorded a single trajectory, not even its key."""
        return self._opened is None

    @property
    def sink(self) -> FineStore | None:
        """What takes the rows: this, or nothing."""
        return None if self.missing and not self._strict else self

    def number(self, process: str) -> int:
        """The number of a process."""
        return self.numbers.setdefault(process, len(self.numbers))

    def open(self) -> tuple[duckdb.DuckDBPyConnection, Bulk]:
        """The database with all tables, and what brings rows there, until :meth:`close`.

        Raises:
            ProbeError: A library is missing.
        """
        if self._opened is None:
            if self.missing:
                raise ProbeError(
                    "this recording holds single trajectories, which takes"
                    f" {' and '.join(self.missing)}, not installed here; install with pip install"
                    " 'rlvr-probe[cli]'"
                )
            from rlvr_probe.recording.tables.database import connect_tables

            sql = self._stack.enter_context(
                connect_tables(
                    self._threads, whole=self.whole, signals=self._signals, size_b=self.size_b
                )
            )
            sql.execute("; ".join(table.ddl for table in STAGING))
            sql.execute(statements("rlvr_probe.recording.fine", "join.sql")["hashes"])
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
        if self._held == _HELD or not self._may_hold:
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
        self._files.append((path, process, rows))

    def attach_files(self) -> None:
        """Put the columns of all compacted segments behind the rows of their tables."""
        files, self._files = self._files, []
        by_table = dict[str, list[tuple[str, int]]]()
        for path, process, rows in files:
            self.rows.update(rows)
            for table in rows:
                by_table.setdefault(table, []).append((str(path), process))
        if by_table:
            from rlvr_probe.recording.compacted.columns import attach_columns

            sql, bulk = self.open()
            bulk.finish()
            attach_columns(sql, by_table)

    def pack(self) -> PackedRows:
        """What was taken, for the store of another process."""
        columns = dict[str, bytes]()
        if not self.is_empty:
            sql, bulk = self.open()
            bulk.finish()
            for table in (*self.rows, *(["q_key"] if self._batches else [])):
                with anonymous_file() as file:
                    path = path_of(file)
                    how = "(FORMAT parquet, USE_TMP_FILE false)"
                    sql.execute(f"COPY {table} TO {literal(path)} {how}")
                    columns[table] = Path(path).read_bytes()
        return PackedRows(columns, self._files, self.rows, self._batches)

    def unpack(self, packed: PackedRows) -> int:
        """Take what another store took; what to add to its numbers of batches."""
        first, self._batches = self._batches, self._batches + packed.batches
        self.rows.update(packed.rows)
        for path, process, rows in packed.files:
            self.add_file(process, self.hold(path), rows)
        for table, columns in packed.columns.items():
            keyed = f"* REPLACE (k + {first} AS k)" if table == "q_key" else "*"
            with anonymous_file() as file:
                file.write(columns)
                file.flush()
                self.open()[0].execute(
                    f"INSERT INTO {table} SELECT {keyed} FROM read_parquet(?, {AS_IT_IS})",
                    [path_of(file)],
                )
        return first

    def close(self) -> None:
        """Drop everything."""
        self.__exit__(None, None, None)

    def __enter__(self) -> FineStore:
        return self

    def __exit__(self, *error: Any) -> None:
        stack, self._stack = self._stack, ExitStack()
        self._opened, self._files, self._held = None, [], 0
        stack.__exit__(*error)
