"""What became of each process: still runs, exited, died, or was ended with its training.

Whether one runs is known from ``/proc`` of its own machine. Ray ends the processes of a job by
killing them, so that a missing closing row says nothing of them. What a recording can prove is that
one was still there when training was over, or when the driver left the job: as after Ctrl-C, which
ends training too. A process that no other is to end has closed its journal, or died.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rlvr_probe.model import names
from rlvr_probe.model.trace import ProcessState
from rlvr_probe.recording.header import Header

if TYPE_CHECKING:
    from rlvr_probe.recording.attempts import Launch
    from rlvr_probe.recording.clock import RunClock
    from rlvr_probe.recording.processes import Recorded

__all__ = ["DRIVER", "Machine", "is_taken", "settle"]

DRIVER = "driver"
"""Role of the process that starts a job, and is not ended by it."""

_BEAT_NS = 2_000_000_000
"""How long before its end a process may have given its last sign of life, ns: 0.1 s, more on a busy
machine. Allowed only where training returned, and so needed no process any more."""

_TAKEN_NS = 30_000_000_000
"""A process that a leaving driver takes with it is gone this much later at the latest, ns."""

_KERNELS: Final = (b"ipykernel", b"kernel_launcher")
"""In the command of a notebook's kernel: of Jupyter and of Colab."""


class Machine:
    """This machine, as far as recordings can come from it.

    Attributes:
        boot: Its boot id; empty if unknown.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        """Look at ``proc``, which a test may make."""
        self._proc = proc
        try:
            text = (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii")
        except (OSError, ValueError):
            text = ""
        self.boot = text.strip()

    def is_home_of(self, header: Header) -> bool:
        """Whether the process ran on this machine since it last booted."""
        return bool(header.boot) and header.boot == self.boot

    def now_ns(self) -> int:
        """CLOCK_MONOTONIC now, the clock of every journal from here, ns."""
        return time.monotonic_ns()

    def state(self, header: Header, ended: bool) -> ProcessState:
        """What became of a process.

        A process of another pid namespace (a container, seen from outside) is taken for dead: its
        pid means nothing here.

        Args:
            header: Its header.
            ended: It closed its journal in an orderly way.
        """
        if ended:
            return "exited"
        if not self.is_home_of(header):
            return "unknown"
        started = self._started(header.pid)
        if started is None:
            return "died"
        if header.start_ticks is None:
            return "unknown"
        return "running" if started == header.start_ticks else "died"

    def is_interactive(self, pid: int) -> bool:
        """Whether a process here waits for what somebody types: a notebook's kernel, or a prompt.

        By its command alone, of which nothing is kept; False where that cannot be read.
        """
        try:
            text = (self._proc / str(pid) / "cmdline").read_bytes()
        except OSError:
            return False
        program, *arguments = text.rstrip(b"\0").split(b"\0")
        if any(word in argument for argument in arguments for word in _KERNELS):
            return True
        name = program.rpartition(b"/")[2]
        options = list(takewhile(lambda argument: argument.startswith(b"-"), arguments))
        prompt = name.startswith(b"python") and (not arguments or b"-i" in options)
        return prompt or any(b"ipython" in text for text in (name, *arguments[:1]))

    def _started(self, pid: int) -> int | None:
        """Start of a live process in clock ticks since boot; None if it is gone or a zombie."""
        try:
            text = (self._proc / str(pid) / "stat").read_bytes()
            # The command, in parentheses, may itself hold spaces and parentheses.
            fields = text[text.rindex(b")") + 1 :].split()
            return None if fields[0] in (b"Z", b"X") else int(fields[19])
        except (OSError, ValueError, IndexError):
            return None


@dataclass(frozen=True, slots=True)
class _End:
    """How training ended.

    Attributes:
        time_ns: End of the last work of it that was recorded, or when its trainer was surely gone,
            on the clock of the run.
        clocks: Keys of the clocks of its trainers.
        returned: By itself, all steps done, and nothing failed afterwards.
    """

    time_ns: int
    clocks: frozenset[str]
    returned: bool


def settle(launches: Sequence[Launch], processes: Sequence[Recorded], clock: RunClock) -> None:
    """Change the state of processes of ``died`` that were there to the end of their training.

    Of those of another machine, which are ``unknown``, where a driver of theirs is gone as well.
    Where training returned by itself and how long a process lived is not recorded, its state is
    ``unknown``.
    """
    by_key = {process.header.process: process for process in processes}
    for launch in launches:
        members = [processes[index] for index in launch.members]
        end = _end([processes[index] for index in launch.trainers], clock)
        drivers = [process for process in members if process.journal.role == DRIVER]
        left = any(driver.journal.ended or driver.journal.left_ns for driver in drivers)
        for process in members:
            gone = process.state == "died" or (process.state == "unknown" and left)
            if gone and _is_ended_by_another(process, by_key):
                taken = any(_was_taken(process, driver) for driver in drivers)
                if taken or (end is not None and _outlived(process, end, clock)):
                    process.state = "ended_with_training"
                elif end is not None and end.returned and not _is_timed(process):
                    process.state = "unknown"


def _is_ended_by_another(process: Recorded, by_key: Mapping[str, Recorded]) -> bool:
    """Whether it, or who started it, is a part of a job that the job ends."""
    seen = set[str]()
    above: Recorded | None = process
    while above is not None and above.header.process not in seen:
        if above.journal.role:
            return above.journal.role != DRIVER
        seen.add(above.header.process)
        above = by_key.get(above.header.owner or "")
    return False


def _is_timed(process: Recorded) -> bool:
    """Whether a table says how long it lived."""
    return process.table is not None and process.table.heartbeat_ns > 0


def is_taken(header: Header, seen_ns: int, driver: Header, left_ns: int) -> bool:
    """Whether a process was there when the driver of its job left, and gone soon afterwards.

    Times of two machines are not compared: who left a moment before may be the reason.

    Args:
        header: Of the process.
        seen_ns: When it gave its last sign of life, CLOCK_MONOTONIC.
        driver: Header of the driver.
        left_ns: When that left, CLOCK_MONOTONIC; 0 if it did not.
    """
    if not left_ns or header.clock != driver.clock:
        return False
    return left_ns <= seen_ns <= left_ns + _TAKEN_NS


def _was_taken(process: Recorded, driver: Recorded) -> bool:
    journal = driver.journal
    left_ns = journal.left_ns or (journal.last_ns if journal.ended else 0)
    return is_taken(process.header, process.heartbeat_ns, driver.header, left_ns)


def _outlived(process: Recorded, end: _End, clock: RunClock) -> bool:
    last = clock.at(process, process.heartbeat_ns)
    if end.returned:
        return last >= end.time_ns - _BEAT_NS
    # Where training failed, a process that left a moment before may be the reason.
    return last >= end.time_ns and end.clocks == {process.header.clock}


def _end(trainers: Sequence[Recorded], clock: RunClock) -> _End | None:
    """When and how training ended; None if it did not, as far as is recorded."""
    ends = [_end_of(trainer) for trainer in trainers]
    known = [end for end in ends if end is not None]
    if not known or len(known) < len(ends):
        return None
    return _End(
        max(clock.at(trainer, at) for trainer, (at, _) in zip(trainers, known, strict=True)),
        frozenset(trainer.header.clock for trainer in trainers),
        all(returned for _, returned in known),
    )


def _end_of(trainer: Recorded) -> tuple[int, bool] | None:
    """When the training of one trainer was over, and whether it returned by itself."""
    journal, table = trainer.journal, trainer.table
    spans = [span for span in journal.spans if span.name != names.USER.name]
    final = max(spans, key=lambda span: (span.end_ns, -span.start_ns), default=None)
    at = max(journal.over_ns, 0 if final is None else final.end_ns)
    # A reward function may fail and be asked again: what failed as a whole failed last.
    raised = final is not None and final.error is not None
    inside = _is_inside(trainer)
    if journal.over_ns and not raised and not inside:
        return at, True
    if trainer.state == "exited" or (raised and not inside):
        return at, False
    if trainer.state == "died" and table is not None and table.heartbeat_ns:
        return trainer.heartbeat_ns + _BEAT_NS, False
    return None


def _is_inside(trainer: Recorded) -> bool:
    """Whether it was in the middle of something of the training when it was last seen."""
    journal = trainer.journal
    opened = [name for name, _, _ in journal.opened.values()]
    for slot in trainer.table.slots if trainer.table is not None else ():
        if slot.span not in journal.finished:
            opened.append(slot.name)
    return any(name != names.USER.name for name in opened)
