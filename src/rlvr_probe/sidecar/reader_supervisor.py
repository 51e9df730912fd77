"""Supervises the device reader: starts it, hears it, and goes on without devices that hold it.

A call into a driver may never return, and its process may then not even be killed. So the reader
says what it asks before it asks. One that says nothing for a while is abandoned, and the next one
leaves alone what the last one was about to ask, for a minute, then for twice as long each time. As
long as an abandoned one is still there its driver has not answered: nothing is tried again, and
where there are two, nothing more is read.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from rlvr_probe.config import ARM, OWNER
from rlvr_probe.devices.rows import Define, Row
from rlvr_probe.model import names
from rlvr_probe.sidecar import device_reader
from rlvr_probe.sidecar.device_reader import COMM
from rlvr_probe.sidecar.subprocesses import close_pipes, start

__all__ = ["ReaderSupervisor", "left_hanging"]

_S: Final = 1_000_000_000
_HEAR_NS: Final = _S // 5
_SILENT_NS: Final = 10 * _S
"""Nothing said for so long is a call that does not return."""
_OPENING_NS: Final = 30 * _S
"""The same of the first reader: without its daemon a driver initializes each GPU for seconds."""
_TURNS: Final = 6
"""So often it is waited so long for one that wants to run: on a busy machine it waits for its turn,
and a driver may also turn in a circle."""
_STEP_NS: Final = _S
"""A sidecar that stood still itself counts no more than this as silence."""

_GONE_NS: Final = _S
"""Who was killed is gone by then, unless its driver holds it."""

_FIRST_WAIT_NS: Final = 60 * _S
_LONGEST_WAIT_NS: Final = 3600 * _S
_AGAIN_NS: Final = 5 * _S
_LONGEST_AGAIN_NS: Final = 600 * _S
_MOST_HANGING: Final = 2
_READ_B: Final = 1 << 16
_NOTE_MAX: Final = 200
_END_S: Final = 0.5
_CRASHES: Final = frozenset(
    -number
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
)

_NAMES: Final = {
    name.name: name
    for name in (names.DEVICE, names.DEVICE_SAMPLE, names.DEVICE_STATE, names.DEVICE_FAULT)
}
_FACTS: Final = tuple(attribute.name for attribute in names.DEVICE.attributes)
_FAULT: Final = tuple(attribute.name for attribute in names.DEVICE_FAULT.attributes)
_NO_COUNTERS: Final = frozenset({"device", "window_s"})
_UNRESPONSIVE: Final = "unresponsive"


@dataclass(slots=True)
class _Left:
    """A place that a reader hung at.

    Attributes:
        wait_ns: How long it is left alone.
        due_ns: When it is asked again; None while it is.
        asked_ns: Since when.
    """

    wait_ns: int
    due_ns: int | None
    asked_ns: int = 0


@dataclass(slots=True)
class _Known:
    """A device that a reader reported.

    Attributes:
        number: Of the device in the journal.
        place: Name that a reader asks by.
        facts: Values of its last ``device`` row.
        told: Counters that it gave.
    """

    number: int
    place: str
    facts: list[Any]
    told: set[str] = field(default_factory=set)


class ReaderSupervisor:
    """The reader of one sidecar, and those before it. Used by one thread; never waits for one.

    Attributes:
        next_ns: CLOCK_MONOTONIC at which :meth:`look` has something to do.
    """

    def __init__(
        self,
        hz: float,
        define: Define,
        origin_ns: int,
        fault: Callable[[str, str, int], None],
        *,
        first: int = 1,
    ) -> None:
        """Start nothing yet.

        Args:
            hz: How often the fast counters of a device are read, 0.2 to 9.
            define: Called before the first row of each layout.
            origin_ns: ``mono_ns`` of the journal's header: times of rows count from there.
            fault: Called with a place, an error, and how often there was that, all in all.
            first: Number of the first device.
        """
        self._hz = hz
        self._define = define
        self._origin_ns = origin_ns
        self._fault = fault
        self._first = first
        self._process: subprocess.Popen[bytes] | None = None
        self._abandoned: list[subprocess.Popen[bytes]] = []
        self._left: dict[str, _Left] = {}
        self._known: dict[str, _Known] = {}
        self._counts = Counter[tuple[str, str]]()
        self._noted = set[str]()
        self._over = False
        self._again_ns = _AGAIN_NS
        self._begin_ns = self._began_ns = self._looked_ns = self.next_ns = 0
        self._forget()

    def _forget(self) -> None:
        """What was heard of one reader."""
        self._out = -1
        self._heard = b""
        self._place = ""
        self._silent_ns = self._turns = 0
        self._found: dict[str, str] | None = None
        self._layouts: dict[int, tuple[int, str, Sequence[str]]] = {}
        self._here: dict[int, _Known] = {}

    def look(self, now_ns: int) -> list[Row]:
        """Event rows that were heard since; starts a reader, or abandons it, if it is time to."""
        passed_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        self.next_ns = now_ns + (_LONGEST_WAIT_NS if self._over else _HEAR_NS)
        self._abandoned = [process for process in self._abandoned if process.poll() is None]
        process = self._process
        if process is None:
            if not self._over and now_ns >= self._begin_ns:
                return self._start(now_ns)
            return []
        self._silent_ns += min(passed_ns, _STEP_NS)
        rows, ended = self._hear(now_ns)
        status = process.poll() if ended else None
        opening = self._found is None and not self._known
        if status is not None:
            rows += self._bury(process, status, now_ns)
        elif self._silent_ns >= (_OPENING_NS if opening else _SILENT_NS) and self._is_held(process):
            rows += self._abandon(process, now_ns)
        elif self._due(now_ns):
            self._try_again(process, now_ns)
        return rows

    def close(self) -> None:
        """End it."""
        process, self._process, self._over = self._process, None, True
        if process is not None:
            self._kill(process)
            with suppress(subprocess.TimeoutExpired):  # the kernel does not let go of it
                process.wait(_END_S)

    # ---------------------------------------------------------------- one reader after another

    def _start(self, now_ns: int) -> list[Row]:
        self._begin_ns = now_ns + self._again_ns  # unless this goes well
        hanging = left_hanging()
        if hanging >= _MOST_HANGING:
            self._begin_ns = now_ns + _FIRST_WAIT_NS
            self._report("devices.reader", "Hanging")
            return self._mute(self._known.values(), "two readers hang in the driver", now_ns)
        for left in () if hanging else self._due(now_ns):
            left.due_ns, left.asked_ns = None, now_ns
        alone = [place for place, left in self._left.items() if left.due_ns is not None]
        self._forget()
        environ = {name: text for name, text in os.environ.items() if name not in (ARM, OWNER)}
        arguments = str(self._hz), str(self._origin_ns), msgspec.json.encode(sorted(alone))
        process = start("device_reader", *arguments, environ=environ)
        self._out = -1 if process.stdout is None else process.stdout.fileno()
        self._process, self._began_ns = process, now_ns
        return []

    def _abandon(self, process: subprocess.Popen[bytes], now_ns: int) -> list[Row]:
        """Leave a reader to its driver, and alone what it asked."""
        self._kill(process)
        self._report("devices.reader", "Unresponsive")
        self._begin_ns = now_ns + _GONE_NS
        return self._leave_alone("does not answer", now_ns, fault=True)

    def _is_held(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether one that says nothing is held by what it asked; else it is given time again."""
        try:
            stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:  # gone
            return False
        state = stat.rpartition(") ")[2][:1]
        self._turns += state == "R"
        held = state not in "RTt" or self._turns >= _TURNS  # T: somebody stopped it
        self._silent_ns = self._silent_ns if held else 0
        return held

    def _bury(self, process: subprocess.Popen[bytes], status: int, now_ns: int) -> list[Row]:
        """Take note of the end of a reader."""
        self._kill(process)
        if status == 0 and not self._found:  # nothing to read
            due = [left.due_ns for left in self._left.values() if left.due_ns is not None]
            self._over, self._begin_ns = not due, min(due, default=0)
            return []
        if now_ns - self._began_ns >= _LONGEST_AGAIN_NS:
            self._again_ns = _AGAIN_NS
        self._begin_ns = now_ns + self._again_ns
        self._again_ns = min(2 * self._again_ns, _LONGEST_AGAIN_NS)
        self._report("devices.reader", f"status {status}")
        if status in _CRASHES:
            return self._leave_alone("crashes its library", now_ns)
        return []

    def _try_again(self, process: subprocess.Popen[bytes], now_ns: int) -> None:
        """Have the next reader ask what was left alone, unless the last one is still held."""
        if left_hanging():
            for left in self._due(now_ns):
                left.due_ns = now_ns + _FIRST_WAIT_NS
            return
        self._kill(process)
        self._begin_ns = now_ns + _GONE_NS

    def _due(self, now_ns: int) -> list[_Left]:
        left = self._left.values()
        return [place for place in left if place.due_ns is not None and place.due_ns <= now_ns]

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        self._process = None
        self._abandoned.append(process)
        process.kill()
        close_pipes(process)

    def _leave_alone(self, why: str, now_ns: int, *, fault: bool = False) -> list[Row]:
        place = self._place
        if not place:  # it was between two readings: no device is to blame
            return []
        before = self._left.get(place)
        wait_ns = _FIRST_WAIT_NS
        if before is not None and now_ns - before.asked_ns < 2 * before.wait_ns:
            wait_ns = min(2 * before.wait_ns, _LONGEST_WAIT_NS)
        self._left[place] = _Left(wait_ns, now_ns + wait_ns)
        held = [known for known in self._known.values() if known.place == place]
        rows = [
            self._row(names.DEVICE_FAULT, _FAULT, now_ns, known.number, _UNRESPONSIVE, None)
            for known in held
            if fault
        ]
        if not held:
            rows += self._note(f"{place} {why}", now_ns)
        return [*rows, *self._mute(held, why, now_ns)]

    # ---------------------------------------------------------------- what it says

    def _hear(self, now_ns: int) -> tuple[list[Row], bool]:
        """Rows that it said, and whether it has ended."""
        rows = list[Row]()
        while True:
            try:
                said = os.read(self._out, _READ_B)
            except BlockingIOError:
                return rows, False
            if not said:
                return rows, True
            self._silent_ns = self._turns = 0
            *lines, self._heard = (self._heard + said).split(b"\n")
            for line in lines:
                rows += self._take(msgspec.json.decode(line), now_ns)

    def _take(self, words: Sequence[Any], now_ns: int) -> list[Row]:
        kind, *rest = words
        if kind == device_reader.AT:
            [self._place] = rest
        elif kind == device_reader.DEF:
            number, name, attributes = rest
            self._layouts[number] = self._define(_NAMES[name], attributes), name, attributes
        elif kind == device_reader.FOUND:
            found: dict[str, str] = rest[0]
            self._found = found
            gone = [
                known
                for uuid, known in self._known.items()
                if uuid not in found and known.place not in self._left
            ]
            return self._mute(gone, "not found any more", now_ns)
        elif kind == device_reader.FAULT:
            place, error, count = rest
            self._report(place, error, count)
        elif kind == device_reader.NOTE:
            return self._note(rest[0], now_ns)
        elif kind == device_reader.ROWS:
            return [self._translated(row) for row in rest[0]]
        return []

    def _translated(self, row: Row) -> Row:
        """A row with the numbers of the journal."""
        layout, time_ns, parent, device, *values = row
        number, name, attributes = self._layouts[layout]
        if name == names.DEVICE.name:
            uuid = values[0]
            place = str((self._found or {}).get(uuid, uuid))
            known = self._known.get(uuid)
            if known is None:
                known = _Known(self._first + len(self._known), place, values)
            known.place, known.facts = place, values
            self._here[device] = self._known[uuid] = known
        known = self._here[device]
        if name in (names.DEVICE_SAMPLE.name, names.DEVICE_STATE.name):
            known.told.update(attributes)
        return [number, time_ns, parent, known.number, *values]

    # ---------------------------------------------------------------- what is recorded of it

    def _mute(self, devices: Iterable[_Known], why: str, now_ns: int) -> list[Row]:
        """Record of devices again that they are silent now."""
        rows = list[Row]()
        for known in devices:
            *facts, absent = known.facts
            before = {text.partition(": ")[0] for text in absent}
            new = sorted(known.told - _NO_COUNTERS - before)
            absent = [*absent, *(f"{name}: {why}" for name in new)]
            rows.append(self._row(names.DEVICE, _FACTS, now_ns, known.number, *facts, absent))
        return rows

    def _note(self, text: str, now_ns: int) -> list[Row]:
        text = text[:_NOTE_MAX]
        if text in self._noted:
            return []
        self._noted.add(text)
        return [self._row(names.DEVICE_NOTE, ("text",), now_ns, text)]

    def _row(self, name: names.Name, attributes: Sequence[str], now_ns: int, *values: Any) -> Row:
        return [self._define(name, attributes), now_ns - self._origin_ns, 0, *values]

    def _report(self, place: str, error: str, count: int = 1) -> None:
        self._counts[place, error] += count
        self._fault(place, error, self._counts[place, error])


def left_hanging(proc: Path = Path("/proc")) -> int:
    """Readers of this user on this node, of any sidecar, that were killed and are still there.

    Args:
        proc: Where the kernel lists processes.
    """
    try:
        folders = list(proc.iterdir())
    except OSError:  # the place does not exist here
        return 0
    return sum(_hangs(folder) for folder in folders if folder.name.isdecimal())


def _hangs(folder: Path) -> bool:
    try:
        if (folder / "comm").read_text().strip() != COMM or folder.stat().st_uid != os.geteuid():
            return False
        status = (folder / "status").read_text()
    except OSError:  # gone meanwhile
        return False
    told = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    pending = int(told.get("SigPnd", "0"), 16) | int(told.get("ShdPnd", "0"), 16)
    is_over = told.get("State", "").startswith(("Z", "X"))
    return not is_over and bool(pending >> (signal.SIGKILL - 1) & 1)
