"""A run as it goes on: what is new of it, and which of its steps are over.

Rows are read once as they come, to see where steps end, and once more when one is over, together
with what is around them: a trace is built of that window alone. Work and memory grow with what is
new, not with the run.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rlvr_probe.exceptions import RecordingError
from rlvr_probe.model import names
from rlvr_probe.model.trace import Attempt, Step, Trace
from rlvr_probe.recording.files import RunFiles, list_files
from rlvr_probe.recording.follow.growing_journal import Follower
from rlvr_probe.recording.follow.lookback import Lookback
from rlvr_probe.recording.header import Header
from rlvr_probe.recording.opentable import read_table
from rlvr_probe.recording.process_state import Machine
from rlvr_probe.recording.processes import Loaded, Recorded
from rlvr_probe.recording.store import FineStore
from rlvr_probe.recording.trace import read_loaded

__all__ = ["Over", "Window"]

_S: Final = 1_000_000_000
_SETTLED_NS: Final = _S // 4
"""A row is in the journal so long after it ended, where the process keeps flushing."""

_READINGS: Final = 3
"""Readings of devices after a step that show what they were at its end."""

_DEVICES_NS: Final = 600 * _S
"""How long readings of devices stay in the window."""

_PATIENCE_S: Final = 30.0
"""How long a step that ended waits for a process that does not flush."""

_FOREVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Over:
    """Steps that are over, in the order of training, and the window they lie in.

    Attributes:
        until_ns: Everything that was read of devices before is there, ns on the clock of the run.
    """

    window: Trace
    steps: list[Step]
    until_ns: int


class Window:
    """What is known of a run that goes on. One thread.

    Attributes:
        read_b: How much was read of it, bytes.
    """

    def __init__(
        self,
        folder: Path,
        machine: Machine | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read nothing yet.

        Args:
            folder: Run folder.
            machine: This machine.
            clock_s: Time to be patient by, s.
        """
        self._folder = folder
        self._machine = Machine() if machine is None else machine
        self._clock_s = clock_s
        self.read_b = 0
        self._processes: dict[str, Follower] = {}
        self._run = ""
        self._ended: list[tuple[int, float]] = []
        """Ends of steps that were not handed over, by wall clock, ns, and when they were seen."""
        self._handed: dict[int, tuple[int, int, int]] = {}
        """By attempt, the last step that was handed over: session, life, number."""
        self._lookback = Lookback()
        self._finished = False

    @property
    def is_ours(self) -> bool:
        """Whether this node hands the run over: the one of the first process that recorded."""
        first = min(self._headers(), key=lambda head: (head.epoch_ns, head.process), default=None)
        return first is not None and self._machine.is_home_of(first)

    @property
    def began(self) -> bool:
        """Whether any process has recorded."""
        return any(True for _ in self._headers())

    def close(self) -> None:
        """Close every file."""
        for process in self._processes.values():
            process.close()

    def finish(self) -> None:
        """Take it that no process of this machine writes any more."""
        self._finished = True

    def read(self, limit_b: int) -> bool:
        """Read what is new, the oldest first; whether there is more.

        Args:
            limit_b: How much at most, bytes.
        """
        try:
            files = list_files(self._folder)
        except RecordingError:  # nothing yet, or not any more
            return False
        self._look(files)
        left = limit_b
        behind = [
            (_reached(process), key)
            for key, process in self._processes.items()
            if not process.at_end
        ]
        heapq.heapify(behind)
        while left > 0 and behind:
            _, key = heapq.heappop(behind)
            process = self._processes[key]
            try:
                size = process.read()
                self.read_b += size
                left -= size or 1
            except (OSError, RecordingError):
                process.at_end = True
            self._note_steps(process)
            if not process.at_end:
                heapq.heappush(behind, (_reached(process), key))
        for process in self._processes.values():
            process.known_ns = self._known(process)
        return self._is_behind

    def over(self, *, devices: bool = False) -> Over | None:
        """Steps that are over and were not given yet; None if there are none.

        Args:
            devices: Give the readings of devices even if there is no such step.
        """
        until_ns = self._until()
        due = {end_ns for end_ns, _ in self._ended if end_ns + _SETTLED_NS <= until_ns}
        if due or (until_ns >= _FOREVER and self._trained()):
            self._ended = [end for end in self._ended if end[0] not in due]
            trace = self._trace(rows=True)
            steps = list(self._steps_over(trace, until_ns))
            if steps:
                return Over(trace, steps, self._devices_until() - trace.epoch_ns)
        if not devices or not self._sidecars():
            return None
        trace = self._trace(rows=False)
        return Over(trace, [], self._devices_until() - trace.epoch_ns)

    def forget(self, over: Over) -> None:
        """Take note that ``over`` was handed over, and drop what is not needed any more."""
        for step in over.steps:
            self._handed[step.attempt] = _place(step)
            self._lookback.note(step, over.window.epoch_ns)
        cut_ns = self._lookback.start_ns
        if cut_ns is None:
            return
        offsets = self._offsets()
        recording = [
            (process, offsets[process.header.clock])
            for process in self._processes.values()
            if process.header is not None
        ]
        for process, offset in recording:
            for slot in () if process.table is None else process.table.slots:
                if slot.name not in (names.USER.name, names.STEP.name):
                    cut_ns = min(cut_ns, max(self._lookback.least_ns, slot.start_ns + offset))
        for process, offset in recording:
            before_ns = cut_ns - offset
            if process.is_sidecar:
                before_ns = min(before_ns, process.last_ns - _DEVICES_NS)
            process.forget(before_ns)

    # ---------------------------------------------------------------- what is there

    @property
    def _is_behind(self) -> bool:
        return any(not process.at_end for process in self._processes.values())

    def _headers(self) -> Iterator[Header]:
        headers = (process.header for process in self._processes.values())
        return (header for header in headers if header is not None)

    def _sidecars(self) -> list[Follower]:
        return [process for process in self._processes.values() if process.is_sidecar]

    def _look(self, files: RunFiles) -> None:
        for key, parts in files.segments.items():
            process = self._processes.get(key)
            if process is None:
                process = self._processes[key] = Follower(key)
            process.parts = {part.number: part for part in parts}
            # Its end is where it was last seen; it may have grown since.
            process.at_end = False
            path = files.tables.get(key)
            process.table = None if path is None else read_table(path, key)
            if process.header is not None:
                process.state = self._machine.state(process.header, process.ended_in_order)

    def _offsets(self) -> dict[str, int]:
        """Wall clock at CLOCK_MONOTONIC 0 by clock, as its first process had it, ns since 1970."""
        first = dict[str, tuple[int, int]]()
        for header in self._headers():
            start = (header.mono_ns, header.epoch_ns - header.mono_ns)
            first[header.clock] = min(first.get(header.clock, start), start)
        return {clock: offset for clock, (_, offset) in first.items()}

    def _note_steps(self, process: Follower) -> None:
        header = process.header
        if header is not None and process.steps:
            offset, seen_s = header.epoch_ns - header.mono_ns, self._clock_s()
            self._ended += ((end_ns + offset, seen_s) for end_ns in process.steps)
            process.steps.clear()

    def _known(self, process: Follower) -> int:
        header, table = process.header, process.table
        if header is None:
            return _FOREVER if process.at_end else -1
        if not process.at_end:
            return process.last_ns
        if self._finished and self._machine.is_home_of(header):
            return _FOREVER
        whole = table is None or process.lines >= table.written
        if process.ended or process.state not in ("running", "unknown"):
            return _FOREVER if whole or process.ended else process.last_ns
        if process.is_sidecar:
            return process.last_ns - round(_READINGS * _S * max(1.0, 1 / process.hz))
        if table is None or not whole:
            return process.last_ns
        return max(process.last_ns, table.heartbeat_ns)

    def _devices_until(self) -> int:
        """The same of what sidecars read: a process that hangs does not hold them back."""
        return self._all_until(self._sidecars())

    def _all_until(self, processes: Iterable[Follower]) -> int:
        offsets = self._offsets()
        return min(
            (
                process.known_ns + (0 if process.header is None else offsets[process.header.clock])
                for process in processes
                if process.known_ns < _FOREVER
            ),
            default=_FOREVER,
        )

    def _until(self) -> int:
        """By wall clock, before when everything is known that will be, ns since 1970."""
        until_ns = self._all_until(self._processes.values())
        late = [end_ns for end_ns, seen_s in self._ended if self._clock_s() - seen_s > _PATIENCE_S]
        if late and not self._is_behind:
            until_ns = max(until_ns, max(late) + _SETTLED_NS)
        return until_ns

    def _trained(self) -> bool:
        return any(process.trained for process in self._processes.values()) or bool(self._ended)

    # ---------------------------------------------------------------- the trace of the window

    def _trace(self, *, rows: bool) -> Trace:
        with FineStore(threads=1, strict=False) as store:
            return read_loaded(self._loaded(store, rows=rows), self._machine, store)

    def _loaded(self, store: FineStore, *, rows: bool) -> Loaded:
        loaded = Loaded()
        for process in self._processes.values():
            header = process.header
            if header is None:
                continue
            loaded.run = loaded.run or header.run
            since_ns = 0
            if not rows:
                since_ns = process.last_ns - _DEVICES_NS if process.is_sidecar else _FOREVER
            try:
                journal = process.journal(store, since_ns)
            except OSError:  # deleted, and with it what is lost to this export
                continue
            recorded = Recorded(header, journal, process.table, process.state)
            process.trained = recorded.trained = process.trained or recorded.trained
            self._lookback.queued = self._lookback.queued or bool(journal.queued)
            loaded.recorded.append(recorded)
        loaded.recorded.sort(key=lambda process: (process.header.epoch_ns, process.header.process))
        return loaded

    def _is_read(self, attempt: Attempt, trace: Trace) -> bool:
        """Whether no process of an attempt runs, and everything that they wrote was read."""
        members = [trace.processes[index] for index in attempt.processes]
        return all(
            process.state not in ("running", "unknown")
            and self._processes[process.key].known_ns >= _FOREVER
            for process in members
        )

    def _steps_over(self, trace: Trace, until_ns: int) -> Iterator[Step]:
        for attempt in trace.attempts:
            handed = self._handed.get(attempt.index)
            count = len(attempt.steps)
            settled_ns = until_ns - _SETTLED_NS - trace.epoch_ns
            if not (self._is_read(attempt, trace) or _is_continued(attempt, trace, settled_ns)):
                count = _done(attempt, settled_ns)
            for step in attempt.steps[:count]:
                if handed is None or _place(step) > handed:
                    yield step


def _end_of(step: Step) -> int:
    return max((span.end_ns for span in step.spans), default=0)


def _place(step: Step) -> tuple[int, int, int]:
    return step.session, step.life, step.number


def _is_continued(attempt: Attempt, trace: Trace, until_ns: int) -> bool:
    """Whether a later attempt went on with the training, and so this one is over."""
    return any(
        step.done and step.ranks_done and _end_of(step) <= until_ns
        for later in trace.attempts[attempt.index + 1 :]
        if later.lineage == attempt.lineage and not later.concurrent
        for step in later.steps
    )


def _done(attempt: Attempt, until_ns: int) -> int:
    """How many of the first steps are over: those up to the last one that every rank finished.

    When calls that their caller did not wait for were over, only the next calls show.
    """
    done = [
        at
        for at, step in enumerate(attempt.steps)
        if step.done and step.ranks_done and not step.open
        if _end_of(step) <= until_ns
    ]
    if done and any(
        span.name == names.RPC.name and span.attributes.get("waits", 1) == 0
        for span in attempt.steps[done[-1]].spans
    ):
        done.pop()
    return done[-1] + 1 if done else 0


def _reached(process: Follower) -> int:
    """How far a journal was read, by its wall clock, ns since 1970."""
    header = process.header
    if header is None:
        return 0
    return max(process.last_ns, header.mono_ns) + header.epoch_ns - header.mono_ns
