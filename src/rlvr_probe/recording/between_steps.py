"""What a trainer's process does between two of its steps, which no span covers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from rlvr_probe.model import names
from rlvr_probe.model.trace import OpenSpan
from rlvr_probe.recording.clock import RunClock
from rlvr_probe.recording.processes import Recorded

__all__ = ["AFTER", "AROUND", "BEFORE", "BETWEEN", "OUTSIDE", "UNSEEN", "Between", "find_between"]

BETWEEN: Final = "between_steps"
"""From the end of a step, or of a stage after it, to what starts next: a callback, logging, a data
loader."""
BEFORE: Final = "before_steps"
"""From the start of training, or of a process without rows, to its first step."""
AFTER: Final = "after_training"
"""Since training returned, or since the last span after it ended: what a script does then, or hangs
in, for example an upload, the end of a process group, or a wait for threads."""
UNSEEN: Final = "unseen"
"""Since the last span that ended, where open spans are unknown because there is no table of
them."""
AROUND: Final = frozenset((names.STEP.name, names.EXPERIENCE.name, *names.STAGES))
"""Spans in which a trainer is not outside of its steps."""
OUTSIDE: Final = -1
"""In place of a span id, for what is not a span."""

_STAGES: Final = 1_000
"""Stages of a step that are remembered until it ends: they have ended before it."""


class Between:
    """The time outside of steps of one process, whose spans arrive as they end. One thread.

    Attributes:
        since_ns: When what goes on outside of any step started, if nothing is open,
            CLOCK_MONOTONIC; None outside of training.
        over_ns: When that returned; None if it did not, or goes on.
        stepped: Whether a step of it has ended.
    """

    def __init__(self) -> None:
        """Start outside of training."""
        self.since_ns: int | None = None
        self.over_ns: int | None = None
        self.stepped = False
        self._step_ns = 0
        self._stages: deque[tuple[int, int]] = deque(maxlen=_STAGES)

    def start(self, time_ns: int) -> None:
        """Note the start of training."""
        self.since_ns, self.over_ns, self.stepped = time_ns, None, False
        self._stages.clear()

    def end(self, time_ns: int) -> None:
        """Note its return."""
        self.since_ns, self.over_ns = None, time_ns

    def add(self, name: str, start_ns: int, end_ns: int) -> Iterator[int]:
        """Note a span of :data:`AROUND` that ended; yield how long each gap it closed lasted, ns.

        What lies between two steps is known once the second has ended: the stages in it are
        recorded before that.
        """
        if name == names.STEP.name:
            if self.stepped:
                yield from self._parts(start_ns)
            self._stages.clear()
            self.stepped, self._step_ns, self.over_ns = True, end_ns, None
        else:
            self._stages.append((start_ns, end_ns))
        if self.since_ns is not None:
            self.since_ns = max(self.since_ns, end_ns)
        elif name == names.STEP.name:
            self.since_ns = end_ns

    def _parts(self, until_ns: int) -> Iterator[int]:
        last_ns = self._step_ns
        outside = [stage for stage in self._stages if stage[0] < until_ns]
        for start_ns, end_ns in (*sorted(outside), (until_ns, until_ns)):
            if start_ns > last_ns:
                yield start_ns - last_ns
            last_ns = max(last_ns, end_ns)


def find_between(index: int, process: Recorded, clock: RunClock, now_ns: int) -> OpenSpan | None:
    """The open span of a process last seen between steps, if it did not end by itself.

    Args:
        index: Number of the process.
        process: With its rows.
        clock: Of the run.
        now_ns: CLOCK_MONOTONIC of this machine, where that of a running process ends.

    Returns:
        None where nothing shows it: the process was in a step or a stage, its training returned or
        failed, or it has no table of open spans, which holds its signs of life.
    """
    journal, table = process.journal, process.table
    spans = [span for span in journal.spans if span.name in AROUND]
    if table is None or journal.over_ns or process.state not in ("running", "died", "unknown"):
        return None
    if all(span.name != names.STEP.name for span in spans):
        return None
    last = max(spans, key=lambda span: (span.end_ns, -span.start_ns))
    started_ns = max((session.time_ns for session in journal.sessions), default=0)
    inside = any(slot.name in AROUND and slot.span not in journal.finished for slot in table.slots)
    until_ns = now_ns if process.state == "running" else process.heartbeat_ns
    step = last.attributes.get("step")
    if inside or last.error or started_ns > last.end_ns or until_ns <= last.end_ns:
        return None
    return OpenSpan(
        process=index,
        id=OUTSIDE,
        parent=0,
        name=BETWEEN,
        detail="",
        step=step if type(step) is int else None,
        start_ns=clock.at(process, last.end_ns),
        age_s=(until_ns - last.end_ns) / 1e9,
        thread=None,
    )
