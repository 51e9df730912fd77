"""Where the fine rows of a run are while it is read: a database that is begun only for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.recording.columns import Table
from rlvr_probe.recording.fine import columns

if TYPE_CHECKING:
    import duckdb

    from rlvr_probe.recording.bulk import Bulk

__all__ = ["FineStore"]


class FineStore:
    """Takes the fine rows of a run while it is read: Python decodes, DuckDB loads beside it.

    Attributes:
        whole: Every table of the run is to be filled, and not only what a trace takes.
        is_missing: DuckDB, without which no row is taken, is not installed.
        numbers: Of each process, by its key.
        rows: How many were taken, by table.
        has_requests: Requests of engines were joined.
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
        self.is_missing = find_spec("duckdb") is None
        self._strict = strict
        self.numbers: dict[str, int] = {}
        self.rows = Counter[str]()
        self.has_requests = False
        self._threads, self._signals = threads, signals
        self._batches = 0
        self._stack = ExitStack()
        self._sql: duckdb.DuckDBPyConnection | None = None
        self._bulk: Bulk | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nobody told of a single trajectory, not even by its key."""
        return self._sql is None

    @property
    def sink(self) -> FineStore | None:
        """What takes the rows: this, or nothing."""
        return None if self.is_missing and not self._strict else self

    def number(self, process: str) -> int:
        """The number of a process."""
        return self.numbers.setdefault(process, len(self.numbers))

    def open(self) -> tuple[duckdb.DuckDBPyConnection, Bulk]:
        """The database with all tables, and what brings rows there, until :meth:`close`.

        Raises:
            ProbeError: DuckDB is not installed.
        """
        if self._sql is None or self._bulk is None:
            if self.is_missing:
                raise ProbeError(
                    "this recording tells of single trajectories, which are joined with duckdb, not"
                    " installed here; install with pip install 'rlvr-probe[cli]'"
                )
            from rlvr_probe.recording.bulk import Bulk
            from rlvr_probe.recording.tables.opened import connect_tables

            sql = self._stack.enter_context(
                connect_tables(self._threads, whole=self.whole, signals=self._signals)
            )
            sql.execute("; ".join(table.ddl for table in columns.ALL))
            self._sql, self._bulk = sql, Bulk(sql)
            self._stack.callback(self._bulk.close)
        return self._sql, self._bulk

    def keys(self, keys: Sequence[str | None]) -> int:
        """Take the keys of the rows of a batch; their number in ``q_key``."""
        number, self._batches = self._batches, self._batches + 1
        _, bulk = self.open()
        bulk.add_columns(columns.KEY, {"local": list(range(len(keys))), "key": keys}, k=number)
        return number

    def add(self, table: Table, process: int, values: dict[str, Sequence[Any] | None]) -> None:
        """Take rows of a table of :mod:`~rlvr_probe.recording.fine.columns`."""
        _, bulk = self.open()
        self.rows[table.name] += len(values["start"] or ())
        bulk.add_columns(table, values, p=process)

    def close(self) -> None:
        """Drop everything."""
        self.__exit__(None, None, None)

    def __enter__(self) -> FineStore:
        return self

    def __exit__(self, *error: Any) -> None:
        stack, self._stack = self._stack, ExitStack()
        self._sql = self._bulk = None
        stack.__exit__(*error)
