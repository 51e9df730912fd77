"""Sends a run while it goes on: step by step, and of devices minute by minute."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic as clock_s
from typing import Final

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.model.trace import Step, Trace
from rlvr_probe_otlp.planning.data_model import Unit
from rlvr_probe_otlp.planning.device_metrics import DeviceUnits
from rlvr_probe_otlp.planning.identity import Place, place_of
from rlvr_probe_otlp.planning.kept_trajectories import Choice, Limits
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.planning.run_metrics import Histograms, Meter, Temporality
from rlvr_probe_otlp.settings import batch_size, destinations, exemplars, histograms, temporality
from rlvr_probe_otlp.wire.answers import Verdict
from rlvr_probe_otlp.wire.delivery import Lane, complaint, send
from rlvr_probe_otlp.wire.offsets import FILE, Note, opened
from rlvr_probe_otlp.wire.sdk_encoding import Encoder

__all__ = ["LiveExport"]

_TRIES: Final = 7
"""How often something is sent that ends in an error there, before it is left to ``export``."""


class LiveExport:
    """A :class:`~rlvr_probe.exporter.LiveSession`.

    What it sends is what :class:`~rlvr_probe_otlp.exporter.OTLPExporter` would, with the same ids,
    and both note it in one file. What a collector refuses for good, or does not take at all,
    keeps nothing else back.

    Attributes:
        faults: ``rejected`` spans and points; 1 for ``credentials`` that are refused,
            ``no_receiver`` for a signal, and an ``error`` that the collector has with something.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        """Take note of where to send.

        Raises:
            ConfigError: The environment asks for something impossible.
        """
        self._file = folder / FILE
        self._limits = Limits()
        self._destinations = destinations(environ)
        self._exemplars = exemplars(environ, self._destinations)
        self._size = batch_size(environ)
        self._temporality: Temporality = temporality(environ)
        self._histograms: Histograms = histograms(environ)
        self._meter: Meter | None = None
        self._devices = DeviceUnits(self._temporality)
        self._choice = Choice(self._limits)
        self._waiting = deque[tuple[Sequence[Unit], Encoder]]()
        self._planned = set[Place]()
        """Steps that are among what waits."""
        self._unwritten: list[Note] = []
        self._tries = 0
        self._pause_until_s = 0.0
        self.faults = Counter[str]()

    def steps(self, window: Trace, steps: Sequence[Step], until_ns: int) -> None:
        """Send steps that are over, and what devices did until then."""
        units = self._plan(window, steps, until_ns)
        if units:
            self._waiting.append((units, self._encoder(window)))
        self._send()

    def end(self, trace: Trace) -> None:
        """Send what is not there yet: what lies outside of steps, and what came late."""
        plan = Plan(trace, self._limits, temporality=self._temporality, histograms=self._histograms)
        self._waiting.append((list(plan.units()), self._encoder(trace)))
        self._send()

    def close(self, timeout_s: float) -> None:
        """Nothing is open between two calls."""

    def _encoder(self, trace: Trace) -> Encoder:
        return Encoder(trace, self._temporality, exemplars=self._exemplars)

    def _plan(self, window: Trace, steps: Sequence[Step], until_ns: int) -> list[Unit]:
        new = [step for step in steps if place_of(step) not in self._planned]
        for step in new:
            self._choice.learn(step)
        plan = Plan(window, self._limits, temporality=self._temporality, choice=self._choice)
        context = plan.context
        if self._meter is None:
            self._meter = Meter(context.at(0), self._temporality, self._histograms)
        found = [plan.unit(step, self._meter) for step in new]
        self._planned.update(map(place_of, new))
        units = [unit for unit in found if unit is not None]
        return [*units, *self._devices.units(context, window, until_ns)]

    def _send(self) -> None:
        """Send what waits.

        Raises:
            ProbeError: Not everything was taken; it waits on.
        """
        while self._waiting:
            if clock_s() < self._pause_until_s:
                raise ProbeError("the collector asked for patience")
            units, encoder = self._waiting[0]
            with opened(self._file, self._unwritten) as offsets:
                lanes = send(units, self._destinations, offsets, encoder, self._size)
            self._tries += 1
            waits = [self._waits(lane) for lane in lanes]
            if any(waits):
                raise ProbeError("; ".join(filter(None, map(complaint, lanes))))
            self._tries = 0
            self._waiting.popleft()
        self._planned.clear()

    def _waits(self, lane: Lane) -> bool:
        """Whether nothing more is sent before ``lane`` has what it lacks; take note of why."""
        self.faults["rejected"] += sum(lane.rejected.values())
        verdict = None if lane.stopped is None else lane.stopped.verdict
        if lane.stopped is not None and lane.stopped.wait_s is not None:
            self._pause_until_s = clock_s() + lane.stopped.wait_s
        if verdict in (Verdict.LATER, Verdict.DENIED):
            if verdict is Verdict.DENIED:
                self.faults["credentials"] = 1
            return True
        if verdict is Verdict.NOWHERE:
            self.faults["no_receiver"] = 1
            return False
        if lane.left:
            self.faults["error"] = 1
        return lane.left > 0 and self._tries < _TRIES
