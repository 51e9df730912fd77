"""Delivers a plan: in the order of training, once, and as far as each collector takes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from rlvr_probe.exceptions import ProbeError
from rlvr_probe_otlp.encoding import Encoder
from rlvr_probe_otlp.offsets import Offsets
from rlvr_probe_otlp.plan import Plan
from rlvr_probe_otlp.sending import Complaints, Sender, listening, sender
from rlvr_probe_otlp.settings import Destination
from rlvr_probe_otlp.telemetry import PlannedSpan, Point, Unit
from rlvr_probe_otlp.values import digest

__all__ = ["Lane", "check", "deliver", "send"]


@dataclass(slots=True)
class Lane:
    """One signal on its way to its collector.

    Attributes:
        waiting: Units to note once what waits was taken: key and content of each.
        left: Units that were not taken.
        refused: Why the collector took no more; empty while it does.
        sent, before: Units that were taken now, and those it had.
        items: Spans or points that were taken now.
    """

    destination: Destination
    sender: Sender
    size: int
    spans: list[PlannedSpan] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    waiting: list[tuple[str, str]] = field(default_factory=list)
    refused: str = ""
    left: int = 0
    sent: int = 0
    before: int = 0
    items: int = 0

    def take(self, unit: Unit, encoder: Encoder, offsets: Offsets, heard: Complaints) -> None:
        """Send what is of this signal in ``unit``, sooner or later."""
        spans, points = list[PlannedSpan](), list[Point]()
        told = unit.content
        if self.destination.signal == "traces":
            kept = [trace for trace in unit.traces if encoder.keeps(trace)]
            spans = [span for trace in kept for span in trace.spans]
        else:
            points = list(unit.points)
            told = digest(points)
        if not spans and not points:
            return
        if offsets.has(self.destination.key, unit.key, told):
            self.before += 1
            return
        if self.refused:
            self.left += 1
            return
        begin, count = 0, max(len(spans), len(points))
        while begin < count:
            if len(self.spans) + len(self.points) >= self.size:
                self.flush(offsets, heard)
            end = begin + self.size - len(self.spans) - len(self.points)
            self.spans += spans[begin:end]
            self.points += points[begin:end]
            begin = end
        self.waiting.append((unit.key, told))
        if self.refused:
            self._drop()

    def flush(self, offsets: Offsets, heard: Complaints) -> None:
        """Send what waits, and note the units that are complete by that."""
        if self.refused or not (self.spans or self.points):
            return
        heard.last = ""
        if not self.sender.send(self.spans, self.points):
            self.refused = heard.last or "no reason given"
            self._drop()
            return
        self.items += len(self.spans) + len(self.points)
        self.spans, self.points = [], []
        for key, content in self.waiting:
            offsets.note(self.destination.key, key, content)
        self.sent += len(self.waiting)
        self.waiting.clear()

    def _drop(self) -> None:
        self.left += len(self.waiting)
        self.waiting.clear()
        self.spans, self.points = [], []

    def said(self) -> str:
        """What was done, as a line."""
        what = "spans" if self.destination.signal == "traces" else "points of metrics"
        line = f"  {self.destination.shown}: {self.items:,} {what} in {self.sent:,} units"
        return line + (f", {self.before:,} units were there already" if self.before else "")


def send(
    units: Iterable[Unit],
    destinations: Sequence[Destination],
    offsets: Offsets,
    encoder: Encoder,
    size: int,
) -> Sequence[Lane]:
    """Send what each collector does not have yet; what became of it, by collector.

    A collector that does not take something, in the time that the OTEL_* variables allow for one
    request, is not asked again.

    Args:
        units: What shall be there in the end.
        destinations: One collector for each signal.
        offsets: What they have; what they take is noted.
        encoder: Of the run.
        size: Most spans or points in one request.

    Raises:
        OSError: What was taken cannot be noted; it is sent again by a repetition.
    """
    with ExitStack() as stack:
        heard = stack.enter_context(listening())
        lanes = list[Lane]()
        for destination in destinations:
            connection = sender(destination, encoder)
            stack.callback(connection.close)
            lanes.append(Lane(destination, connection, size))
        for unit in units:
            for lane in lanes:
                lane.take(unit, encoder, offsets, heard)
        for lane in lanes:
            lane.flush(offsets, heard)
    return lanes


def deliver(
    plan: Plan, destinations: Sequence[Destination], offsets: Offsets, encoder: Encoder, size: int
) -> Iterator[str]:
    """Send what each collector does not have yet of a whole plan, as :func:`send` does.

    Returns:
        Lines that say what was done.

    Raises:
        ProbeError: A collector did not take everything; a repetition sends the rest.
    """
    lanes = send(plan.units(), destinations, offsets, encoder, size)
    yield f"run {plan.context.run}: sent to"
    yield from (lane.said() for lane in lanes)
    if plan.waiting:
        yield f"  {plan.waiting:,} steps are going on: repeat the command when they are over"
    if plan.unclear:
        yield (
            f"  {plan.unclear:,} open spans were left out: whether their process runs cannot be"
            " told here"
        )
    check(lanes)


def check(lanes: Sequence[Lane]) -> None:
    """Complain of what was not taken.

    Raises:
        ProbeError: A collector did not take everything.
    """
    failed = [lane for lane in lanes if lane.refused]
    if failed:
        raise ProbeError("; ".join(_complaint(lane) for lane in failed))


def _complaint(lane: Lane) -> str:
    destination = lane.destination
    hint = ""
    if destination.protocol != "grpc" and ":4317" in destination.shown:
        hint = " (port 4317 usually speaks gRPC: --protocol grpc)"
    return (
        f"{destination.shown} did not take {lane.left:,} units of {destination.signal}:"
        f" {lane.refused}{hint}; repeat the command to send the rest"
    )
