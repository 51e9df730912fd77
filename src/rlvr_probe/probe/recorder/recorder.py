"""The hot path: clock, id, tuple, queue. No I/O, no lock held across user code, no SDK.

Rows wait in a bounded queue. A daemon thread, started with the first row, encodes and writes them
in chunks (:mod:`rlvr_probe.probe.journal`). It also journals what has been open for more than a
second, running totals of losses and faults, watches the recorder's own time, and sees to it that
the run has a sidecar on this node.

One recorder lives per process. A forked child starts over: new process key, new files, empty queue.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from time import monotonic_ns
from typing import Any

from rlvr_probe import guard
from rlvr_probe.config import OWNER, Config
from rlvr_probe.model.names import Name
from rlvr_probe.probe import identity
from rlvr_probe.probe.election import Keeper
from rlvr_probe.probe.journal import JournalWriter, OpenTable
from rlvr_probe.probe.journal.space import FINE
from rlvr_probe.probe.journal.writer import build_header, epoch_pair
from rlvr_probe.probe.recorder import bookkeeping
from rlvr_probe.probe.recorder.bookkeeping import FULL, OFF, Bookkeeping, worth
from rlvr_probe.probe.recorder.loaded_libraries import DevicesUsed, record_application_span
from rlvr_probe.probe.recorder.output_folder import OutputFolder
from rlvr_probe.probe.recorder.owntime import SAMPLE, Account
from rlvr_probe.probe.recorder.pause import Pause

__all__ = ["CURRENT", "Recorder"]

CURRENT: ContextVar[int] = ContextVar("rlvr_probe_span", default=0)
"""Span id that new spans of this context get as parent; 0 for none."""

_CHUNK = 1_000
"""Rows encoded at once: longer chunks hold the interpreter lock too long (108 us per 1,000)."""

_TABLE_WAIT_S = 0.05
"""Once per process: so that the first step is in the open-span table, even a slow disk may not cost
the run more than this."""

_TRIES = 3
"""How often a recording is started that cannot be."""

_ids = itertools.count(1)
"""Span ids of this process, never the same for two recorders: a call may outlive a detach."""


class Recorder:
    """Records spans and events of this process into one run folder.

    Attributes:
        level: FULL, STAGES (coarse spans and events only) or OFF.
        mono_ns: CLOCK_MONOTONIC at time 0 of this process's journal.
        open: Open spans by id: definition, start (CLOCK_MONOTONIC), parent.
        lost: Rows dropped before they reached the journal, by reason.
        process: Key of this process start, 16 hex digits.
        own_ns: Time spent inside hooks on users' threads and in the flush thread, ns.
        accounts: What each place has cost users' threads, by its name.
        place: Where it writes.
    """

    def __init__(self, config: Config, run: str) -> None:
        """Take note of where to record; nothing is written before the first row.

        Args:
            config: ``config.out`` is absolute.
            run: Run id, the name of the folder.
        """
        self.level = OFF if config.disabled else FULL
        self._config = config
        self.run = run
        self._owner = os.environ.get(OWNER) or None
        self.next_id = _ids.__next__
        self.accounts: dict[str, Account] = {}
        self._start_over()

    def _start_over(self) -> None:
        """State of one process start. Also runs in a forked child, where no thread exists yet."""
        self.process = identity.process_key()
        self._pid = os.getpid()
        self.mono_ns, self._epoch_ns = epoch_pair()
        self.rows: deque[tuple[Any, ...]] = deque()
        self.open: dict[int, tuple[int, int, int]] = {}
        self.lost: Counter[str] = Counter()
        self.own_ns = 0
        for account in self.accounts.values():
            account.start_over()
        folder = self._config.out / self.run
        self.place = OutputFolder(folder, self.process, self._config)
        self._keeper = Keeper(folder, self._config, first=self._owner is None)
        self._limit = self._config.queue_rows
        self._table: OpenTable | None = None
        self._writer: JournalWriter | None = None
        self._thread: threading.Thread | None = None
        # Re-entrant: a signal handler may record while its own thread starts the recording.
        self._start_lock = threading.RLock()
        self._starting = False
        self._failed = 0
        self._drain_lock = threading.Lock()
        self._pause = Pause(self._config.flush_s)
        self._closed = False
        self._devices = DevicesUsed()
        muted = [account.place for account in self.accounts.values() if account.muted]
        share = self._config.own_share
        self._books = Bookkeeping(self.mono_ns, self.level, own_share=share, muted=muted)

    # ---------------------------------------------------------------- hot path

    define = staticmethod(bookkeeping.define)

    def begin(
        self,
        span: int,
        name: Name,
        definition: int,
        start_ns: int,
        parent: int,
        detail: str = "",
        step: int | None = None,
    ) -> None:
        """Open a span under an id drawn by ``next_id``.

        The caller draws it, so that it can :meth:`drop` a span whose start was interrupted.
        """
        if name.coarse:
            if self._thread is None:
                self._start()
            if self._table is not None:
                self._table.open(span, parent, start_ns, step, name.name.encode(), detail)
        self.open[span] = (definition, start_ns, parent)

    def end(
        self, span: int, definition: int, end_ns: int, error: str | None, values: Sequence[Any]
    ) -> None:
        """Close a span opened by :meth:`begin` in this process; others are ignored."""
        found = self.open.get(span)
        if found is None:
            return
        _, start_ns, parent = found
        if self._table is not None:
            self._table.close(span)
        self.open.pop(span, None)
        self.append(
            (definition, start_ns - self.mono_ns, end_ns - start_ns, span, parent, error, *values)
        )
        if worth(definition) != FINE:
            if self._devices.wanted:
                self._devices.look(self)
            if not parent:
                record_application_span(self, span)
        if not self.open:
            self._pause.hurry(end_ns)

    def is_inside(self, span: int, ancestor: int) -> bool:
        """Whether ``span`` is ``ancestor`` or lies in it; both are open."""
        while span and span != ancestor:
            found = self.open.get(span)
            span = 0 if found is None else found[2]
        return span == ancestor

    def drop(self, span: int) -> None:
        """Forget a span that was started and will not be recorded; others are ignored."""
        self.open.pop(span, None)
        if self._table is not None:
            self._table.close(span)

    def forget_open(self) -> None:
        """Forget every open span: recording is off, so that they will not end."""
        for span in list(self.open):
            self.drop(span)

    def append(self, row: tuple[Any, ...]) -> None:
        """Queue a finished row, or drop and count it if too many wait."""
        rows = self.rows
        if len(rows) >= self._limit:
            self.lost["queue_full"] += 1
            return
        rows.append(row)
        if self._thread is None:
            self._start()

    def span_row(
        self, definition: int, start_ns: int, end_ns: int, parent: int, values: Sequence[Any]
    ) -> int:
        """Queue a span whose two ends are known; returns its id."""
        span = self.next_id()
        begin = start_ns - self.mono_ns
        self.append((definition, begin, end_ns - start_ns, span, parent, None, *values))
        return span

    def event_row(self, definition: int, parent: int, values: Sequence[Any]) -> None:
        """Queue an event of this moment."""
        self.append((definition, monotonic_ns() - self.mono_ns, parent, *values))

    def account(self, place: str) -> Account:
        """What ``place`` has cost; the same object at every call."""
        account = self.accounts.get(place)
        if account is None:
            first = 1 + 7 * len(self.accounts) % SAMPLE
            account = self.accounts.setdefault(place, Account(place, self, first))
        return account

    # ---------------------------------------------------------------- life

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.place.folder

    @property
    def refused(self) -> str | None:
        """Why no journal can be opened, an errno name, or None."""
        return None if self._writer is None else self._writer.refused

    @guard.fail_open("recorder.start")
    def _start(self) -> None:
        with self._start_lock:
            if self._thread is not None or self._closed or self._starting:
                return
            self._starting = True
            try:
                self._make_writer()
            except BaseException:
                # A user's alarm, or no memory at this moment; if it stays, trying costs too much.
                self._starting = False
                self._failed += 1
                if self._failed >= _TRIES:
                    self.level = OFF
                raise
            # Children started from here on belong to this process; one that records nothing is no
            # link between those above and below it. Under attach() the variable exists already: to
            # add one would move the environment, which C code of another thread may be reading.
            os.environ[OWNER] = self.process
            ready = threading.Event()
            thread = threading.Thread(None, self._run, "rlvr-probe", (ready,), daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can be started: nothing would ever be written
                self.level = OFF
                raise
            self._thread = thread
            ready.wait(_TABLE_WAIT_S)

    def _make_writer(self) -> None:
        self.place.settle(self._keeper)
        header = build_header(
            process=self.process,
            run=self.run,
            owner=self._owner,
            mono_ns=self.mono_ns,
            epoch_ns=self._epoch_ns,
        )
        self._writer = self.place.make_writer(header, bookkeeping.definitions_since)

    @guard.fail_open("recorder.open_files")
    def _open_files(self) -> None:
        """Header and open-span table at once: the first step may already hang."""
        with self._drain_lock:  # where the disk hangs here already, close() must not wait for it
            if self._writer is not None:
                self.place.begin(self._writer, self._keeper)
        # Without a table (a network file system, a full disk) spans still become "open" rows.
        with contextlib.suppress(OSError):
            self._table = self.place.make_table()

    @guard.fail_open("recorder.run")
    def _run(self, ready: threading.Event) -> None:
        self._open_files()
        ready.set()
        while self._pause.wait() is not True:
            self.flush()
            self._keeper.look(self)

    @guard.fail_open("recorder.flush")
    def flush(self) -> None:
        """Write everything that waits. Any thread may call it; the flush thread does so."""
        with self._drain_lock:
            self._drain()

    @guard.fail_open("recorder.flush")
    def _drain(self) -> None:
        cpu = time.thread_time_ns()
        writer = self._writer
        if writer is None or self._pid != os.getpid():
            return
        self._write_rows(writer)
        self._write_books(writer)
        self.own_ns += time.thread_time_ns() - cpu

    @guard.fail_open("recorder.write")
    def _write_rows(self, writer: JournalWriter) -> None:
        rows = self.rows
        while rows:
            chunk: list[tuple[Any, ...]] = []
            with contextlib.suppress(IndexError):
                while len(chunk) < _CHUNK:
                    chunk.append(rows.popleft())
            try:
                self._write_chunk(writer, chunk)
            except Exception:
                self.lost["unwritten"] += len(chunk)
                raise

    def _write_chunk(self, writer: JournalWriter, chunk: list[tuple[Any, ...]]) -> None:
        limit = self.place.space.look(writer.written_b, monotonic_ns())
        if limit <= FINE:
            whole = len(chunk)
            chunk = [row for row in chunk if worth(row[0]) < limit]
            writer.lost[self.place.space.reason] += whole - len(chunk)
        writer.write(chunk)

    @guard.fail_open("recorder.books")
    def _write_books(self, writer: JournalWriter) -> None:
        now = monotonic_ns()
        extra = self._books.rows(self, now, writer.lost)
        if extra and not writer.write(extra, records=False):
            self._books.forget()
        if self._table is not None:
            self._table.refill()
            if extra is not None:
                self._table.restore()
            self._table.beat(now, self._lost(), writer.written)

    def _lost(self) -> int:
        written = 0 if self._writer is None else sum(self._writer.lost.values())
        return written + sum(dict(self.lost).values())

    @guard.fail_open("recorder.close")
    def close(self, reason: str, timeout_s: float = 2.0) -> None:
        """Stop the thread, write what waits and the closing row. Idempotent.

        Args:
            reason: ``exit``, ``detach``, ``child_exit``.
            timeout_s: Longest wait for a flush thread that hangs on a dead disk.
        """
        with self._start_lock:
            if self._closed:
                return
            self._closed = True
            self.level = OFF
        self._pause.end()
        if self._pid != os.getpid():
            return
        thread = self._thread
        if thread is None:
            if self._writer is not None or not guard.faults():
                return
            # Nothing was recorded, and not because there was nothing: say why.
            self._make_writer()
        elif thread is not threading.current_thread() and thread.is_alive():
            thread.join(timeout_s)
        # A thread that hangs in a write to a dead disk holds the lock: leave it alone.
        if not self._drain_lock.acquire(timeout=0.1):
            return
        if thread is not None and thread is not threading.current_thread() and thread.is_alive():
            # It hangs elsewhere, where we might as well; it will find the lock taken for good.
            self.lost["unwritten"] += len(self.rows)
            if self._table is not None and self._writer is not None:
                self._table.beat(monotonic_ns(), self._lost(), self._writer.written)
            return
        try:
            self._finish(reason)
        finally:
            self._drain_lock.release()
        self._keeper.hand_over(self.process)

    @guard.fail_open("recorder.finish")
    def _finish(self, reason: str) -> None:
        self._drain()
        now = monotonic_ns()
        writer, time_ns = self._writer, now - self.mono_ns
        if writer is None:
            return
        totals = self._books.totals(self, time_ns, writer.lost)
        writer.write([*totals, ("end", time_ns, reason)], records=False)
        writer.close()
        if self._table is not None:
            self._table.beat(now, self._lost(), writer.written, ended=True)

    def after_fork(self) -> None:
        """Start over in a forked child; what the parent queued, the parent writes."""
        if self._table is not None:
            self._table.abandon()
        try:
            if self._writer is not None:
                self._owner = self.process
                self._writer.abandon()
        finally:
            guard.reset()
            self._start_over()
