"""The run that a command is about: chosen of a folder of runs, read with a line on its progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_probe.cli import complain

if TYPE_CHECKING:
    from rlvr_probe.analysis.characterization import Engine
    from rlvr_probe.model.trace import Trace
    from rlvr_probe.recording.tables import Tables

__all__ = ["ReadingProgress", "choose_run", "open_chosen", "read_chosen"]

_AFTER_S = 0.5
_EVERY_S = 0.2


def choose_run(path: Path) -> Path:
    """The run folder that ``path`` means: itself, or the newest of the runs in it.

    Says on stderr which one may be newer, if the user may not read it.

    Raises:
        RecordingError: There is none, or none that the user may read.
    """
    from rlvr_probe.access import whose
    from rlvr_probe.recording import find_run, list_denied

    run = find_run(path)
    denied = list_denied(path, run)
    if denied:
        newest, *others = denied
        more = f" (and {len(others):,} more)" if others else ""
        complain(
            f"warning: {newest.name}{more} may be newer and is not readable: it {whose(newest)};"
            f" this is {run.name}"
        )
    return run


def read_chosen(path: Path) -> tuple[Path, Trace]:
    """The run folder that ``path`` means, and what was recorded in it."""
    from rlvr_probe.recording import read_run

    folder = choose_run(path)
    with ReadingProgress() as progress:
        return folder, read_run(folder, progress=progress)


@contextmanager
def open_chosen(
    source: Path, progress: ReadingProgress, *, hold: bool = False, engine: Engine | None = None
) -> Iterator[Tables]:
    """The tables of what ``source`` means: saved ones, or those of a run, which may be in a lake.

    Args:
        source: As the user named it.
        progress: Called with bytes read.
        hold: As for :func:`~rlvr_probe.recording.tables.saved.open_saved`.
        engine: Decodes journals, but for those that were fetched.

    Raises:
        RecordingError: There is nothing to read.
    """
    from rlvr_probe.analysis.characterization import HERE
    from rlvr_probe.recording import check_readable
    from rlvr_probe.recording.lake import local_folder, tables_in
    from rlvr_probe.recording.tables import open_saved, open_tables
    from rlvr_probe.storage import is_remote

    check_readable(source)
    saved, engine = tables_in(source), engine or HERE
    if saved is not None:
        with open_saved(saved, threads=engine.threads, hold=hold) as tables:
            yield tables
        return
    with (
        local_folder(source) as folder,
        open_tables(
            choose_run(folder),
            threads=engine.threads,
            progress=progress,
            decode=HERE.decode if is_remote(source) else engine.decode,
        ) as tables,
    ):
        yield tables


class ReadingProgress:
    """Shows bytes read on stderr if it is a terminal and the work takes long; use with ``with``."""

    def __init__(self) -> None:
        self._shown = False
        self._next = time.monotonic() + _AFTER_S
        self._quiet = not sys.stderr.isatty()

    def __enter__(self) -> ReadingProgress:
        return self

    def __call__(self, done_b: int, total_b: int) -> None:
        """Note that ``done_b`` of ``total_b`` bytes were read."""
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        self._next = now + _EVERY_S
        self._shown = True
        share = done_b / total_b if total_b else 1.0
        sys.stderr.write(f"\r\x1b[Kreading journals: {share:4.0%} of {total_b / 1e6:,.0f} MB")
        sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
