"""Ends a query of DuckDB when the user ends the program."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import duckdb

__all__ = ["interruptible"]

_ENDING: Final = (signal.SIGINT, signal.SIGTERM)
_AGAIN_S: Final = 0.1


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
        # DuckDB asks for signals as well, now and then, and tells of one as it likes.
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
            if got[0] in _ENDING:
                ending.set()
        # A query that was just about to begin forgets what came before it.
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
