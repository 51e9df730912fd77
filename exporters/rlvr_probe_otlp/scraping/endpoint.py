"""The endpoint that Prometheus scrapes while a run goes on: what was counted so far."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rlvr_probe.model.trace import Step, Trace
from rlvr_probe_otlp.planning.data_model import Point
from rlvr_probe_otlp.planning.device_metrics import DEVICE_METRICS, PERIOD_NS, DeviceUnits
from rlvr_probe_otlp.planning.identity import Context, Place, place_of
from rlvr_probe_otlp.planning.kept_trajectories import Limits
from rlvr_probe_otlp.planning.run_metrics import (
    Meter,
    count_losses,
    count_missing,
    count_open,
    count_step,
)
from rlvr_probe_otlp.scraping.exposition import Board
from rlvr_probe_otlp.scraping.http_server import PageServer

__all__ = ["FILE", "Endpoint"]

FILE: Final = "prometheus.reached"
"""Name of the file in a run folder that says how far what was shown had come."""

_GAUGES: Final = frozenset(name for name, metric in DEVICE_METRICS.items() if metric.kind != "sum")
_STALE_NS: Final = 4 * PERIOD_NS
_PATIENCE_S: Final = 60.0
_FOREVER: Final = 1 << 62
_UNJOINED: Final = "unjoined"
"""How reasons start that are about rows which belong together."""


class Endpoint:
    """A :class:`~rlvr_probe.exporter.LiveSession` that shows what was counted so far.

    It reads the run from its start each time it is started anew. It shows nothing before
    it has come as far as it was then, so that no counter is seen to go back.

    Attributes:
        faults: None: every scrape is answered.
    """

    faults: Mapping[str, int] = MappingProxyType({})

    def __init__(self, folder: Path, address: tuple[str, int]) -> None:
        """Listen.

        Raises:
            OSError: The address cannot be had.
        """
        self._file = folder / FILE
        self._lock = threading.Lock()
        self._board: Board | None = None
        self._meter: Meter | None = None
        self._devices = DeviceUnits("cumulative", periods=1)
        self._counted = set[Place]()
        self._read_ns = 0
        self._lost = dict[tuple[str, str], int]()
        self._faults = Counter[str]()
        self._before = _reached(self._file)
        self._patience_s = time.monotonic() + _PATIENCE_S
        self._number = 0
        self._server = PageServer(address, self.page)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port it listens on."""
        return self._server.address

    def page(self) -> tuple[int, bytes] | None:
        """What is shown, and how often that changed; None where less was counted than before."""
        with self._lock:
            if self._board is None:
                return None
            steps, read_ns = self._before
            behind = len(self._counted) < steps or self._read_ns < read_ns
            if behind and time.monotonic() < self._patience_s:
                return None
            return self._number, self._board.page()

    def steps(self, window: Trace, steps: Sequence[Step], until_ns: int) -> None:
        """Count steps that are over, and what devices did until then."""
        with self._lock:
            self._take(window, steps, until_ns)
            reached = (len(self._counted), self._read_ns)
            self._number += 1
        if reached >= self._before:
            self._note(reached)

    def end(self, trace: Trace) -> None:
        """Count what came late, and what is missing for good."""
        steps = [step for attempt in trace.attempts for step in attempt.steps]
        self.steps(trace, steps, _FOREVER)
        with self._lock:
            if self._board is not None:
                meter = Meter(0)
                count_losses(meter, trace)
                self._board.take(meter.points(0))
                self._number += 1

    def close(self, timeout_s: float) -> None:
        """Wait until what was counted last was scraped, as long as there is time; then be gone."""
        with self._lock:
            # Nothing more comes: this is how far it gets.
            self._before = (0, 0)
            counted = self._board is not None
        if counted:
            self._server.wait(self._number, timeout_s)
        self._server.close()

    def _take(self, window: Trace, steps: Sequence[Step], until_ns: int) -> None:
        context = Context(window, Limits())
        if self._board is None or self._meter is None:
            self._board = Board({"rl.run.id": window.run})
            self._meter = Meter(context.at(0), "cumulative", "explicit")
        for step in steps:
            if place_of(step) not in self._counted:
                self._counted.add(place_of(step))
                count_step(self._meter, step, context.models.get(step.attempt, {}))
        self._board.take(self._meter.points(0))
        for unit in self._devices.units(context, window, until_ns):
            self._board.take(unit.points)
            self._read_ns = max(self._read_ns, *(point.time_ns for point in unit.points))
        self._board.drop(_GAUGES, self._read_ns - _STALE_NS)
        self._board.drop({"rlvr.spans.open"})
        self._board.take(self._losses(window))

    def _losses(self, window: Trace) -> Sequence[Point]:
        """What is missing, as its processes say, and what is open now.

        What a reader could not join is omitted: in a window the other half may be what is absent.
        """
        for process in window.processes:
            for reason, rows in process.lost.items():
                if not reason.startswith(_UNJOINED):
                    place = (process.key, reason)
                    self._lost[place] = max(rows, self._lost.get(place, 0))
        # The most that each process said.
        self._faults |= Counter(
            {process.key: sum(process.faults.values()) for process in window.processes}
        )
        lost = Counter[str]()
        for (_, reason), rows in self._lost.items():
            lost[reason] += rows
        meter = Meter(0)
        count_missing(meter, lost, self._faults.total())
        count_open(meter, window)
        return meter.points(0)

    def _note(self, reached: tuple[int, int]) -> None:
        """Write down how far it came; where that fails, a counter may be seen to go back."""
        new = self._file.with_name(f"{FILE}.new")
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with open(os.open(new, flags, 0o600), "w", encoding="ascii") as file:
                file.write(f"{reached[0]} {reached[1]}\n")
            new.replace(self._file)


def _reached(file: Path) -> tuple[int, int]:
    """How far what was shown had come: steps, and time of devices, ns since 1970."""
    try:
        steps, read_ns = file.read_text(encoding="ascii").split()
        return int(steps), int(read_ns)
    except (OSError, ValueError):
        return 0, 0
