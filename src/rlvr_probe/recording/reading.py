"""Reads a run: its files, their rows of single trajectories, and the trace of all of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlvr_probe.model.trace import Trace
from rlvr_probe.recording.build import build_trace
from rlvr_probe.recording.files import list_files
from rlvr_probe.recording.fine.join import join, tidy
from rlvr_probe.recording.process_state import Machine
from rlvr_probe.recording.processes import Loaded, Progress, load
from rlvr_probe.recording.store import FineStore

__all__ = ["read_loaded", "read_run", "read_tables"]


def read_run(
    path: Path,
    *more: Path,
    progress: Progress | None = None,
    machine: Machine | None = None,
    strict: bool = True,
) -> Trace:
    """Everything recorded of the run in folder ``path``.

    Takes memory for the lengths and coarse spans of the run, not for its journals; turns and tool
    calls add to it only where they belong to one trajectory. A run that still goes on is read as
    far as it has been written.

    Args:
        path: A run folder, for example from :func:`~rlvr_probe.recording.find_run`.
        more: Other folders of the same run, where nodes kept a part of it each.
        progress: Called after each process with bytes read so far and bytes to read.
        machine: Where to look whether processes still run; this machine.
        strict: Whether a missing library raises that joins rows of single trajectories; else these
            are omitted, and a note says so.

    Raises:
        ProbeError: A library is missing.
        RecordingError: They hold no recording, two runs, or a newer format.
    """
    machine = Machine() if machine is None else machine
    with FineStore(strict=strict) as store:
        return read_loaded(_load((path, *more), store, machine, progress), machine, store)


def read_loaded(loaded: Loaded, machine: Machine, store: FineStore) -> Trace:
    """The trace of what was loaded, with what ``store`` took of it."""
    built = build_trace(loaded, machine, store)
    if built.is_joined:
        from rlvr_probe.recording.fine.restore import restore

        restore(store, built.trace.attempts, built.parts)
    return built.trace


def read_tables(
    store: FineStore,
    run: Sequence[Path],
    *,
    progress: Progress | None = None,
    machine: Machine | None = None,
) -> Trace:
    """Fill the tables of ``store`` from the folders of a run.

    Returns:
        Its trace, without what is known of single trajectories.

    Raises:
        RecordingError: They hold no recording, two runs, or a newer format.
    """
    from rlvr_probe.recording.tables.fill import fill

    machine = Machine() if machine is None else machine
    built = build_trace(_load(run, store, machine, progress), machine, store)
    if not built.is_joined:
        join(store, built.trace.attempts, built.parts, built.processes, built.clock)
    sql, bulk = store.open()
    fill(sql, bulk, built.trace)
    tidy(sql)
    return built.trace


def _load(
    run: Sequence[Path], store: FineStore, machine: Machine, progress: Progress | None
) -> Loaded:
    files = list_files(*run)
    loaded = load(files, machine, progress, store)
    if files.spool is not None and not files.spool.exists():  # what was not read from it was moved
        store.close()
        loaded = load(list_files(*run), machine, None, store)
    return loaded
