"""The reader of a sidecar: a process apart that asks drivers, which may hold it for good.

It says what it is about to ask, and then the answer, in lines of JSON. It ends when the
sidecar does, however that ends: the pipe between them breaks.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from rlvr_probe import guard
from rlvr_probe.devices import load
from rlvr_probe.devices.host import HostBackend
from rlvr_probe.devices.sampler import Sampler
from rlvr_probe.model.names import Name
from rlvr_probe.sidecar.subprocesses import become

__all__ = ["AT", "COMM", "DEF", "FAULT", "FOUND", "NOTE", "ROWS", "main"]

COMM: Final = "rlvr-devices"
"""Name of the process, as the kernel has it."""

AT: Final = "at"
"""``[AT, place]``: this is asked next; nothing is being asked where it is empty."""
DEF: Final = "def"
"""``[DEF, number, name, attributes]``: layout of rows from here on."""
FOUND: Final = "found"
"""``[FOUND, {uuid: place}]``: every device, once they are open."""
NOTE: Final = "note"
"""``[NOTE, text]``: what a backend says of what cannot be read."""
ROWS: Final = "rows"
"""``[ROWS, rows]``: event rows, devices by number."""
FAULT: Final = "fault"
"""``[FAULT, place, error, count]``: errors since the last of the same."""

_LEAST_S: Final = 0.002


def main() -> None:
    """Read until the sidecar is gone; returns at once where there is nothing to read.

    Arguments after the folder of the package: readings per second, CLOCK_MONOTONIC from which times
    of rows count, and places to leave alone, as JSON.
    """
    hz, origin_ns, alone = float(sys.argv[2]), int(sys.argv[3]), msgspec.json.decode(sys.argv[4])
    become(COMM)
    threading.Thread(target=_end_with_the_sidecar, daemon=True).start()
    # What a library prints must not be taken for a line of ours.
    out = os.dup(1)
    os.dup2(2, 1)
    _Reader(out, frozenset(alone)).run(hz, origin_ns)


def _end_with_the_sidecar() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


class _Reader:
    """Says what it reads."""

    def __init__(self, out: int, alone: frozenset[str]) -> None:
        self._out = out
        self._alone = alone
        self._layouts: dict[tuple[str, tuple[str, ...]], int] = {}
        self._faults: dict[tuple[str, str], int] = {}

    def run(self, hz: float, origin_ns: int) -> None:
        """Read while somebody listens, or return if there is no device."""
        backends, failed = load()
        for failure in failed:
            self._say(FAULT, f"devices.{failure.name}", failure.why, 1)
        # The host is read by the sidecar itself: its kernel answers.
        backends = [backend for backend in backends if backend.name != HostBackend.name]
        sampler = Sampler(backends, hz, self._define, origin_ns, touch=self._touch)
        rows = sampler.tick(time.monotonic_ns())
        for backend in backends:
            if backend.why and backend.is_here:
                self._say(NOTE, backend.why)
        self._say(FOUND, {device.uuid: device.place or device.uuid for device in sampler.devices})
        while sampler.devices:
            if rows:
                self._say(ROWS, rows)
            self._report_faults()
            self._touch("")
            time.sleep(max(sampler.next_ns - time.monotonic_ns(), 0) / 1e9 + _LEAST_S)
            rows = sampler.tick(time.monotonic_ns())

    def _touch(self, place: str) -> bool:
        if place in self._alone:
            return False
        self._say(AT, place)
        return True

    def _define(self, name: Name, attributes: Sequence[str]) -> int:
        layout = name.name, tuple(attributes)
        if layout not in self._layouts:
            self._layouts[layout] = len(self._layouts)
            self._say(DEF, self._layouts[layout], *layout)
        return self._layouts[layout]

    def _report_faults(self) -> None:
        for (place, error), count in guard.faults().items():
            told = self._faults.get((place, error), 0)
            if count > told:
                self._faults[place, error] = count
                self._say(FAULT, place, error, count - told)

    def _say(self, *words: object) -> None:
        line = msgspec.json.encode(words) + b"\n"
        while line:
            line = line[os.write(self._out, line) :]
