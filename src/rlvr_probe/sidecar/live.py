"""The live children of a sidecar: each hands a run to one destination while it goes on.

A process of its own, so that neither encoding nor a collector that hangs delays a reading of a
device. It ends when the sidecar does, however that ends: the pipe between them breaks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from rlvr_probe.exceptions import ProbeError, RecordingError
from rlvr_probe.exporter import LiveExporter, LiveSession
from rlvr_probe.recording import read_run
from rlvr_probe.recording.follow.window import Over, Window
from rlvr_probe.registry import EXPORTERS, entries, load_all
from rlvr_probe.sidecar.subprocesses import become, close_pipes, start

__all__ = ["ASKED_S", "DONE", "END", "TAKEN", "Children", "export", "main", "variables", "wanted"]

END: Final = b"e"
"""What the sidecar says when the run is over."""
REFUSED: Final = "refused"
"""What the child says when the destination does not take something for now."""
TAKEN: Final = "taken"
"""And when it does again."""
DONE: Final = "done"
"""And when it has handed over all that it can: from then on it may only be asked for it."""
END_NOT_SENT: Final = "end_not_sent"
"""What it says of a run that is too large to be read once more at its end."""

_READ_B: Final = 8 << 20
_LOOK_S: Final = 1.0
_DEVICES_S: Final = 15.0
_ELSEWHERE_S: Final = 10.0
_LONGEST_WAIT_S: Final = 30.0
_WHOLE_B: Final = 32 << 20
"""Journals of a run that is read once more at its end, bytes."""
ASKED_S: Final = 60.0
"""How long what a run said last may be asked for: four times what Prometheus waits between two."""


def wanted(environ: Mapping[str, str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Destinations that an environment asks for, and those that cannot be asked, with the error."""
    names, failed = list[str](), list[tuple[str, str]]()
    for plugin in load_all(EXPORTERS):
        error, exporter = plugin.error, plugin.made
        try:
            if isinstance(exporter, LiveExporter) and exporter.wanted(environ):
                names.append(plugin.name)
        except Exception as raised:  # noqa: BLE001 - a broken plugin must not stop the others
            error = raised
        if error is not None:
            failed.append((plugin.name, type(error).__name__))
    return list(dict.fromkeys(names)), failed


def variables() -> set[str]:
    """Variables ``RLVR_PROBE_*`` that destinations read."""
    found = set[str]()
    for plugin in load_all(EXPORTERS):
        with suppress(Exception):
            found.update(getattr(plugin.made, "variables", ()))
    return found


def main() -> None:
    """Hand over the run in the folder of the second argument to the third; never returns."""
    folder, name = Path(sys.argv[2]), sys.argv[3]
    become("rlvr-live")
    over = threading.Event()
    threading.Thread(target=_listen, args=(over,), daemon=True).start()
    points = (point for point in entries(EXPORTERS) if point.name == name)
    [point] = {point.value: point for point in points}.values()
    exporter: LiveExporter = point.load()()
    while not folder.is_dir() and not over.wait(_LOOK_S):  # a spool may be there before it
        pass
    export(folder, exporter.open(folder, os.environ), over)


def _listen(over: threading.Event) -> None:
    """Wait for the sidecar's word; without the sidecar, end at once."""
    while os.read(0, 1) == END:
        over.set()
    os._exit(0)


def export(folder: Path, session: LiveSession, over: threading.Event) -> None:
    """Hand over a run until it is over.

    Args:
        folder: Run folder.
        session: Where to.
        over: Set when no process writes to the run any more.
    """
    window = Window(folder)
    hand = _Hand(folder, session, over)
    devices_s = time.monotonic()
    asked_s = 0.0
    try:
        while True:
            last = over.is_set()
            if last:
                window.finish()
            behind = window.read(_READ_B)
            if not window.is_ours:
                if last:
                    return
                over.wait(_ELSEWHERE_S if window.began else _LOOK_S)
                continue
            due = time.monotonic() >= devices_s
            found = window.over(devices=due and not behind)
            if due:
                devices_s = time.monotonic() + _DEVICES_S
            if found is not None:
                hand.over(found)
                window.forget(found)
            elif last and not behind:
                break
            elif not behind:
                over.wait(_LOOK_S)
        hand.end(window.read_b)
        _say(DONE, 1)
        asked_s = ASKED_S
    except RecordingError:  # deleted meanwhile, or two runs: nothing that could be handed over
        return
    finally:
        window.close()
        session.close(asked_s)


class _Hand:
    """Hands over as often as it takes, and reports to the sidecar how that goes."""

    def __init__(self, folder: Path, session: LiveSession, over: threading.Event) -> None:
        self._folder = folder
        self._session = session
        self._last = over
        self._refused = False
        self._told: dict[str, int] = {}

    def over(self, found: Over) -> None:
        """Hand over; wait for a destination that does not take it, unless the run is over.

        Raises:
            ProbeError: The destination did not take it, and the run is over.
        """
        wait_s = _LOOK_S
        while True:
            last = self._last.is_set()
            try:
                self._session.steps(found.window, found.steps, found.until_ns)
            except ProbeError:
                self._report_refusal(refused=True)
                if last:
                    raise
                self._last.wait(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            else:
                self._report_refusal(refused=False)
                return

    def end(self, read_b: int) -> None:
        """Hand over what is left, or say that it stays.

        Args:
            read_b: How large the run is, bytes.

        Raises:
            ProbeError: The destination did not take it.
        """
        if read_b > _WHOLE_B:
            _say(END_NOT_SENT, 1)
            return
        try:
            self._session.end(read_run(self._folder, strict=False))
        finally:
            self._report_faults()

    def _report_refusal(self, *, refused: bool) -> None:
        if refused != self._refused:
            self._refused = refused
            _say(REFUSED if refused else TAKEN, 1)
        self._report_faults()

    def _report_faults(self) -> None:
        for word, count in self._session.faults.items():
            if count > self._told.get(word, 0):
                self._told[word] = count
                _say(word, count)


def _say(word: str, count: int) -> None:
    os.write(1, b"%s %d\n" % (word.encode("ascii", "replace"), count))


# -------------------------------------------------------------------- how the sidecar sees to them

_S: Final = 1_000_000_000
_FIRST_WAIT_NS: Final = 5 * _S
_LONGEST_WAIT_NS: Final = 600 * _S
_POLL_S: Final = 0.05
_STAY_S: Final = 0.25
_SAID: Final = re.compile(rb"([a-z_]{1,32}) ([0-9]{1,15})")
_SAID_B: Final = 4096


class _Child:
    """The process of one destination, and those before it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.due_ns = 0
        self.wait_ns = _FIRST_WAIT_NS
        self.heard = b""
        self.done = False
        self.said = Counter[str]()
        """What it reported, and what those before it did."""
        self.before = Counter[str]()


class Children:
    """Sees to it that every destination that is wanted has its process.

    They get the run from its start, and hand over what their destination lacks.
    """

    def __init__(self, folder: Path, fault: Callable[[str, str, int], None]) -> None:
        """Start nothing yet.

        Args:
            folder: Run folder.
            fault: Called with a place, an error, and how often there was that, each time there is
                more of it.
        """
        self._folder = folder
        self._fault = fault
        self._reported: dict[tuple[str, str], int] = {}
        self._children: list[_Child] = []
        self._staying: list[subprocess.Popen[bytes]] = []

    def begin(self, environ: Mapping[str, str]) -> None:
        """Find out which are wanted."""
        names, failed = wanted(environ)
        for name, error in failed:
            self._report(name, error)
        self._children = [_Child(name) for name in names]

    def look(self, now_ns: int) -> None:
        """Start those that do not run, some time after they ended; hear what they say."""
        for child in self._children:
            if child.process is None:
                if now_ns >= child.due_ns:
                    child.process = start("live", str(self._folder), child.name)
                continue
            self._hear(child, child.process)
            status = child.process.poll()
            if status is not None:
                self._forget(child)
                self._report(child.name, f"status {status}")
                child.due_ns = now_ns + child.wait_ns
                child.wait_ns = min(2 * child.wait_ns, _LONGEST_WAIT_NS)

    def end(self) -> None:
        """Notify them that the run is over: they hand over what is left, and end."""
        for child in self._children:
            if child.process is not None and child.process.stdin is not None:
                with suppress(OSError):
                    child.process.stdin.write(END)

    def stop(self, timeout_s: float) -> None:
        """Wait until they handed over what is left, and end those that last too long.

        What has only to be asked for it yet stays, if there is any time, until :meth:`leave`.

        Args:
            timeout_s: How long they may take together, s.
        """
        until = time.monotonic() + timeout_s
        for child in self._children:
            process = child.process
            if process is None:
                continue
            while process.poll() is None and not child.done and time.monotonic() < until:
                time.sleep(_POLL_S)
                self._hear(child, process)
            self._hear(child, process)
            if process.poll() is None and child.done and timeout_s:
                self._staying.append(process)
                continue
            if process.poll() is None:
                process.kill()
                self._report(child.name, "Timeout")
            elif process.returncode:
                self._report(child.name, f"status {process.returncode}")
            process.wait()
            self._forget(child)
        self._children = []

    def leave(self, timeout_s: float, wait: Callable[[float], bool]) -> None:
        """Let those that stay be asked for what a run said last, then end them.

        Args:
            timeout_s: For how long at most, s.
            wait: Waits for so many seconds; whether they may go on.
        """
        until = time.monotonic() + timeout_s
        try:
            while any(process.poll() is None for process in self._staying):
                if time.monotonic() >= until or not wait(_STAY_S):
                    break
        finally:
            for process in self._staying:
                process.kill()
                process.wait()
                close_pipes(process)
            self._staying = []

    def _hear(self, child: _Child, process: subprocess.Popen[bytes]) -> None:
        said = b"" if process.stdout is None else process.stdout.read(_SAID_B) or b""
        if said:
            child.wait_ns = _FIRST_WAIT_NS
        *lines, child.heard = (child.heard + said)[-_SAID_B:].split(b"\n")
        for line in lines:
            match = _SAID.fullmatch(line)
            word = "" if match is None else match[1].decode()
            child.done = child.done or word == DONE
            if match is not None and word not in (DONE, TAKEN):
                child.said[word] = child.before[word] + int(match[2])
                self._report(child.name, word, child.said[word])

    def _forget(self, child: _Child) -> None:
        process, child.process, child.heard, child.done = child.process, None, b"", False
        child.before.update(child.said - child.before)
        if process is not None:
            close_pipes(process)

    def _report(self, name: str, error: str, count: int = 1) -> None:
        if count > self._reported.get((name, error), 0):
            self._reported[name, error] = count
            self._fault(f"live.{name}", error, count)
