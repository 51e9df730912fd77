"""Opens the tables of a recording for a while."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from rlvr_probe.analysis.tables.bulk import Bulk
from rlvr_probe.analysis.tables.filling import fill
from rlvr_probe.analysis.tables.schema import TABLES, VIEWS
from rlvr_probe.analysis.tables.workloads import fill_workload
from rlvr_probe.model.given import GivenWorkload
from rlvr_probe.model.trace import Trace
from rlvr_probe.trace import find_run, read_run

__all__ = ["Tables", "open_tables"]

_MEMORY: Final = "1500MB"
"""Of DuckDB; what does not fit goes to its temporary directory."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of :mod:`rlvr_probe.analysis.tables.schema`, filled.

    Attributes:
        sql: A connection that has them.
        source: What they were filled from, for messages.
        notes: What a reader should know of the source: sentences, most important first.
    """

    sql: duckdb.DuckDBPyConnection
    source: str
    notes: tuple[str, ...]


@contextmanager
def open_tables(
    source: Path | Trace | GivenWorkload, *, threads: int | None = None
) -> Iterator[Tables]:
    """The tables of ``source``, until the context is left.

    Args:
        source: A run folder, a folder of runs, of which the newest is taken, or what was read.
        threads: Of DuckDB; by default one for each core.

    Raises:
        RecordingError: There is no recording, or it cannot be read.
    """
    if isinstance(source, Path):
        source = read_run(find_run(source))
    with tempfile.TemporaryDirectory(prefix="rlvr-probe-tables-") as name:
        folder = Path(name)
        with _connect(folder, threads) as sql:
            bulk = Bulk(sql, folder)
            if isinstance(source, Trace):
                fill(bulk, source)
            else:
                fill_workload(bulk, source)
            bulk.finish()
            called = source.run if isinstance(source, Trace) else source.name
            yield Tables(sql, called, tuple(source.notes))


@contextmanager
def _connect(folder: Path, threads: int | None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database with the tables, empty, whose overflow goes to ``folder``."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": _MEMORY,
        "temp_directory": str(folder / "overflow"),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    if threads is not None:
        config["threads"] = threads
    with duckdb.connect(":memory:", config=config) as sql:
        for table in TABLES:
            sql.execute(table.ddl)
        for name, query in VIEWS.items():
            sql.execute(f"CREATE VIEW {name} AS {query}")
        yield sql
