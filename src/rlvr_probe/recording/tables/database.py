"""The tables of a recording in DuckDB.

Queries are ended by a signal, and what does not fit into memory goes to a private folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.model.trace import Trace
from rlvr_probe.model.workload import ReadWorkload
from rlvr_probe.recording.files import find_run
from rlvr_probe.recording.journal_files import Decode, decode
from rlvr_probe.recording.notes import of_tables
from rlvr_probe.recording.process_state import Machine
from rlvr_probe.recording.processes import Progress
from rlvr_probe.recording.schema import TABLES, VIEWS
from rlvr_probe.recording.store import FineStore
from rlvr_probe.recording.tables.fill import fill_workload
from rlvr_probe.recording.trace import read_tables

__all__ = [
    "LARGE_B", "Tables", "connect", "connect_tables", "interruptible", "open_recording",
    "open_tables",
]  # fmt: skip

LARGE_B: Final = 256 << 20
"""Journals whose trajectories take more memory, as tables, than DuckDB is given, bytes."""

_MEMORY_B: Final = 1_200_000_000
"""Of DuckDB, at least; what does not fit goes to its temporary directory."""

_JOURNAL_OF_MEMORY: Final = 16
"""Bytes of journals to a byte of memory of DuckDB: of 24, joins of all trajectories fail."""

_OF_MACHINE: Final = 4
"""DuckDB takes at most the machine's memory / this: somebody may train here."""

_OF_A_TRACE: Final = frozenset(
    ("trajectory", "turn", "request", "engine_call", "tool_call", "verification", "reward")
)
"""What a trace takes."""

_ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_AGAIN_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of :mod:`rlvr_probe.recording.schema`, filled.

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
    source: Path | Sequence[Path] | ReadWorkload,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    machine: Machine | None = None,
    signals: bool = True,
    decode: Decode = decode,
) -> Iterator[Tables]:
    """The tables of ``source``, until the context is left.

    Args:
        source: As for :func:`open_recording`, or a workload that was read.
        threads: See there, as all the others.
        progress: Of the reading.
        machine: Of the processes.
        signals: Whether they end queries.
        decode: Of the files.

    Raises:
        RecordingError: There is no recording, it cannot be read, or there are two.
    """
    if isinstance(source, ReadWorkload):
        with FineStore(threads, whole=True, signals=signals) as store:
            sql, bulk = store.open()
            fill_workload(bulk, source)
            bulk.finish()
            yield Tables(sql, source.name, tuple(source.notes))
        return
    with open_recording(
        source, threads=threads, progress=progress, machine=machine, signals=signals, decode=decode
    ) as (_, tables):
        yield tables


@contextmanager
def open_recording(
    source: Path | Sequence[Path],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    machine: Machine | None = None,
    signals: bool = True,
    decode: Decode = decode,
) -> Iterator[tuple[Trace, Tables]]:
    """The tables of a run, until the context is left, and its trace without single trajectories.

    Args:
        source: A run folder, a folder of runs, of which the newest is taken, or several folders of
            one run, where nodes kept a part of it each.
        threads: Of DuckDB; by default one for each core.
        progress: Called after each process with bytes read so far and bytes to read.
        machine: Where to look whether processes still run; this machine.
        signals: Whether Ctrl-C, and a handled SIGTERM, end each query from then on. They must not
            where the program goes on.
        decode: Decodes the files of processes.

    Raises:
        RecordingError: There is no recording, it cannot be read, or there are two.
    """
    run = [find_run(path) for path in ([source] if isinstance(source, Path) else source)]
    with FineStore(threads, whole=True, signals=signals) as store:
        trace = read_tables(store, run, progress=progress, machine=machine, decode=decode)
        sql, _ = store.open()
        yield trace, Tables(sql, trace.run, tuple(of_tables(trace.notes)))


@contextmanager
def connect(
    threads: int | None, *, signals: bool = True, size_b: int = 0
) -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty database in memory; what does not fit goes to a private folder of temporary files.

    Args:
        threads: Of DuckDB; by default one for each core.
        signals: Whether Ctrl-C, and a handled SIGTERM, end each query from then on.
        size_b: Journals that it is for, bytes. Of :data:`LARGE_B` or more nearly nothing fits. Then
            it is a file in that folder: DuckDB compresses what it has in files, and a column that
            is unknown takes no room there.

    Raises:
        ProbeError: Memory and half of what was free on the disk do not suffice.
        KeyboardInterrupt: A signal ended a query.
    """
    with ExitStack() as stack:
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{_memory_b(size_b) // 1_000_000}MB",
            **(overflow := _overflow(stack)),
            # Of what is large, the order takes memory.
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        if threads is not None:
            config["threads"] = threads
        # As a context it raises anew what ends it, which makes a ring of two exceptions' contexts.
        place = overflow["temp_directory"]
        database = f"{place}.duckdb" if size_b >= LARGE_B and place else ":memory:"
        sql = stack.enter_context(closing(duckdb.connect(database, config=config)))
        # Python without a script has it, on stdout.
        sql.execute("SET enable_progress_bar = false")
        if signals:
            stack.enter_context(interruptible(sql))
        try:
            yield sql
        except duckdb.OutOfMemoryException as error:
            raise ProbeError(
                f"this takes more than {config['memory_limit']} of memory and half of what is free"
                f" in {tempfile.gettempdir()}; TMPDIR names a larger disk:"
                f" {str(error).splitlines()[0]}"
            ) from None


def _memory_b(size_b: int) -> int:
    """Memory of DuckDB for journals of ``size_b`` bytes, bytes."""
    machine_b = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(_MEMORY_B, min(size_b // _JOURNAL_OF_MEMORY, machine_b // _OF_MACHINE))


def _overflow(stack: ExitStack) -> dict[str, str]:
    """Settings of where goes what does not fit into memory; nowhere if there is no such place."""
    try:
        made = tempfile.TemporaryDirectory(prefix="rlvr-probe-tables-")
        folder = stack.enter_context(made)
        # Of what is free: somebody trains here, and wants to keep a checkpoint.
        most_b = shutil.disk_usage(folder).free // 2
    except OSError:
        return {"temp_directory": ""}
    return {"temp_directory": f"{folder}/overflow", "max_temp_directory_size": f"{most_b} B"}


@contextmanager
def connect_tables(
    threads: int | None, *, whole: bool, signals: bool = True, size_b: int = 0
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database with the tables, empty; if not ``whole``, with those of single trajectories."""
    with connect(threads, signals=signals, size_b=size_b) as sql:
        wanted = [table.ddl for table in TABLES if whole or table.name in _OF_A_TRACE]
        wanted += [f"CREATE VIEW {name} AS {query}" for name, query in VIEWS.items() if whole]
        sql.execute("; ".join(wanted))
        yield sql


@contextmanager
def interruptible(sql: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Whatever query of ``sql`` runs in the block is ended by Ctrl-C, and by a handled SIGTERM.

    Python runs its signal handlers between two of its own instructions, and a query is one for as
    long as it takes; what a signal writes into the wake-up descriptor is read at once.

    In a thread beside the main one nothing is changed, as only that one may ask for such a
    descriptor, nor in a program that has one already, as an event loop does.

    Raises:
        KeyboardInterrupt: A signal ended a query.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ending = threading.Event()
    try:
        with _watched(sql, ending):
            yield
    except (RuntimeError, duckdb.Error):
        # DuckDB asks for signals as well, now and then, and raises one as either of these.
        if ending.is_set():
            raise KeyboardInterrupt from None
        raise


@contextmanager
def _watched(sql: duckdb.DuckDBPyConnection, ending: threading.Event) -> Iterator[None]:
    """Set ``ending`` when a signal ends the program, and from then on end each query in the block.

    All that came in the block was seen when it is left.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    left = threading.Event()

    def watch() -> None:
        while not ending.is_set() and (got := os.read(reading, 1)):
            if got[0] in _ENDING_SIGNALS:
                ending.set()
        # A query that was just about to start forgets what came before it.
        while not left.wait(_AGAIN_S):
            sql.interrupt()

    watcher = threading.Thread(target=watch, name="rlvr-probe-interruption", daemon=True)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
    watcher.start()
    try:
        yield
    finally:
        if before == -1:
            signal.set_wakeup_fd(-1)
        left.set()
        os.close(writing)
        watcher.join()
        os.close(reading)
