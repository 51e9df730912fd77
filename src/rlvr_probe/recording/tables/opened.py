"""Opens the tables of a recording for a while."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.model.given import GivenWorkload
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import find_run, read_run
from rlvr_probe.recording.bulk import Bulk
from rlvr_probe.recording.files import list_files
from rlvr_probe.recording.left import Unfit
from rlvr_probe.recording.load import Progress
from rlvr_probe.recording.tables.filling import fill
from rlvr_probe.recording.tables.interruption import interruptible
from rlvr_probe.recording.tables.journals import read_tables
from rlvr_probe.recording.tables.schema import TABLES, VIEWS
from rlvr_probe.recording.tables.workloads import fill_workload

__all__ = ["Tables", "connect", "open_tables"]

_LARGE_B: Final = 8 * 1024 * 1024
"""Journals in all, bytes, above which it is worth it to leave their fine rows where they are."""

_MEMORY: Final = "1500MB"
"""Of DuckDB; what does not fit goes to its temporary directory."""

_LESS_MEMORY: Final = "1200MB"
"""The same beside what a large recording takes in Python."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of :mod:`rlvr_probe.recording.tables.schema`, filled.

    Attributes:
        sql: A connection that has them.
        source: What they were filled from, for messages.
        notes: What a reader should know of the source: sentences, most important first.
    """

    sql: duckdb.DuckDBPyConnection
    source: str
    notes: tuple[str, ...]

    def has(self, *names: str) -> bool:
        """Whether there is a table of each of these names; a view is none."""
        found = self.sql.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        return {(name,) for name in names} <= set(found)


@contextmanager
def open_tables(
    source: Path | Sequence[Path] | Trace | GivenWorkload,
    *,
    threads: int | None = None,
    straight: bool | None = None,
    progress: Progress | None = None,
) -> Iterator[Tables]:
    """The tables of ``source``, until the context is left.

    Args:
        source: A run folder, a folder of runs, of which the newest is taken, several folders of one
            run, where nodes kept a part of it each, or what was read.
        threads: Of DuckDB; by default one for each core.
        straight: Whether the fine rows of a run folder go straight from its files into the tables.
            By default those of a large one do. The tables are the same.
        progress: Called after each process with bytes read so far and bytes to read.

    Raises:
        RecordingError: There is no recording, it cannot be read, or there are two.
    """
    with tempfile.TemporaryDirectory(prefix="rlvr-probe-tables-") as name, ExitStack() as stack:
        notes = list[str]()
        if isinstance(source, (Trace, GivenWorkload)):
            yield _fill(stack, Path(name), source, threads, notes)
            return
        run = [find_run(one) for one in ([source] if isinstance(source, Path) else source)]
        opened = None
        if list_files(*run).size_b > _LARGE_B if straight is None else straight:
            try:
                opened = _read_straight(stack, Path(name), run, threads, progress)
            except Unfit as error:
                notes.append(f"read row by row, which takes longer: {error}")
        if opened is None:
            trace = read_run(*run, progress=progress)
            opened = _fill(stack, Path(name), trace, threads, notes)
        yield opened


def _read_straight(
    stack: ExitStack,
    folder: Path,
    run: Sequence[Path],
    threads: int | None,
    progress: Progress | None,
) -> Tables:
    """The tables of the folders of a run, whose fine rows stay where they are.

    Raises:
        Unfit: They cannot.
    """
    with ExitStack() as mine:
        own = Path(mine.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        sql = mine.enter_context(_connect(own, threads, own / "tables.duckdb"))
        trace = read_tables(sql, own, run, progress=progress)
        stack.push(mine.pop_all())
        return Tables(sql, trace.run, tuple(trace.notes))


def _fill(
    stack: ExitStack,
    folder: Path,
    source: Trace | GivenWorkload,
    threads: int | None,
    notes: Sequence[str],
) -> Tables:
    """The tables of what was read."""
    sql = stack.enter_context(_connect(folder, threads))
    bulk = Bulk(sql, folder)
    if isinstance(source, Trace):
        fill(bulk, source)
        called = source.run
    else:
        fill_workload(bulk, source)
        called = source.name
    bulk.finish()
    return Tables(sql, called, (*source.notes, *notes))


@contextmanager
def connect(
    threads: int | None, folder: Path | None = None, path: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty database in ``path``, or in memory.

    Args:
        threads: Of DuckDB; by default one for each core.
        folder: Private; what does not fit into memory goes there. By default one of its own.
        path: File to make.

    Raises:
        ProbeError: Memory and half of what was free on the disk do not suffice.
        KeyboardInterrupt: A signal ended a query.
    """
    with ExitStack() as stack:
        if folder is None:
            made = tempfile.TemporaryDirectory(prefix="rlvr-probe-tables-")
            folder = Path(stack.enter_context(made))
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": _MEMORY if path is None else _LESS_MEMORY,
            "temp_directory": str(folder / "overflow"),
            # Of what is free: somebody trains here, and wants to keep a checkpoint.
            "max_temp_directory_size": f"{shutil.disk_usage(folder).free // 2} B",
            "preserve_insertion_order": path is None,
            # What is in a temporary file need not survive.
            "checkpoint_threshold": "1TB",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        if threads is not None:
            config["threads"] = threads
        where = ":memory:" if path is None else str(path)
        # As a context it raises anew what ends it, which makes a ring of two exceptions' contexts.
        sql = stack.enter_context(closing(duckdb.connect(where, config=config)))
        # Python without a script has it, on stdout.
        sql.execute("SET enable_progress_bar = false")
        stack.enter_context(interruptible(sql))
        try:
            yield sql
        except duckdb.OutOfMemoryException as error:
            raise ProbeError(
                f"this takes more than {config['memory_limit']} of memory and half of what is free"
                f" in {tempfile.gettempdir()}; TMPDIR names a larger disk:"
                f" {str(error).splitlines()[0]}"
            ) from None


@contextmanager
def _connect(
    folder: Path, threads: int | None, path: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database with the tables, empty."""
    with connect(threads, folder, path) as sql:
        for table in TABLES:
            sql.execute(table.ddl)
        for name, query in VIEWS.items():
            sql.execute(f"CREATE VIEW {name} AS {query}")
        yield sql
