"""Delivers units in the order of training, once, and as far as each collector takes them.

In batches: what a collector refuses for good is found by halves and given up, so that it keeps
nothing else.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Final

from rlvr_probe.exceptions import ProbeError
from rlvr_probe_otlp.planning.data_model import Unit
from rlvr_probe_otlp.planning.plan import Plan
from rlvr_probe_otlp.planning.plan_json import digest
from rlvr_probe_otlp.settings import Destination
from rlvr_probe_otlp.wire.answers import Answer, Verdict
from rlvr_probe_otlp.wire.offsets import Offsets
from rlvr_probe_otlp.wire.sdk_encoding import Encoder
from rlvr_probe_otlp.wire.transport import Items, Sender, quiet

__all__ = ["Lane", "complaint", "deliver", "send"]

_BROKEN: Final = 3
"""So many parts in a row that end in an error there: the collector is the reason, not they."""
_HOPELESS: Final = 3
"""So many single spans or points of a unit that are too large."""


@dataclass(slots=True)
class _Sent:
    """A unit on its way.

    Attributes:
        waiting: Parts that were not answered yet, and 1 while more may be queued.
        left: Some of it shall be sent again.
        rejected: Spans or points that were refused for good, by why.
        hopeless: Single spans or points in a row that were too large.
    """

    key: str
    content: str
    waiting: int = 1
    left: bool = False
    rejected: Counter[str] = field(default_factory=Counter)
    hopeless: int = 0


@dataclass(frozen=True, slots=True)
class _Part:
    """What of one unit is in one request."""

    unit: _Sent
    items: Items

    def __len__(self) -> int:
        return len(self.items)


class Lane:
    """Hands over units of one signal in their order.

    Attributes:
        destination: Where to.
        stopped: Why nothing more is sent for now; None while things are.
        sent, before: Units that were taken now, and those it had.
        left: Units that are to be sent again.
        items: Spans or points that were taken now.
        given_up: Units of which something was refused for good, now.
        rejected: Spans and points that were refused for good now, by why.
        known: The same, of units that are skipped because that was before.
        messages: What the collector said of what it did not take, or while it took it, for people.
    """

    def __init__(self, destination: Destination, sender: Sender, size: int, offsets: Offsets):
        """Send nothing yet.

        Args:
            destination: Where to.
            sender: The connection.
            size: Most spans or points in one request.
            offsets: What the collector has; what it takes, and what not, is noted.
        """
        self.destination = destination
        self.stopped: Answer | None = None
        self.sent = self.before = self.left = self.items = self.given_up = 0
        self.rejected, self.known = Counter[str](), Counter[str]()
        self.messages: list[str] = []
        self._sender = sender
        self._size = size
        self._offsets = offsets
        self._queue: deque[_Part] = deque()
        self._queued = 0
        self._broken = 0

    def take(self, unit: Unit, encoder: Encoder) -> None:
        """Send what is of this signal in ``unit``, sooner or later."""
        items: Items = unit.points
        if self.destination.signal == "traces":
            kept = [trace for trace in unit.traces if encoder.keeps(trace)]
            items = [span for trace in kept for span in trace.spans]
        if not items:
            return
        content = unit.content if self.destination.signal == "traces" else digest(unit.points)
        place = (self.destination.key, unit.key, content)
        rejected = self._offsets.rejected(*place)
        if self._offsets.has(*place):
            self.before += 1
        elif rejected is not None:
            self.known.update(rejected)
        elif self.stopped is not None:
            self.left += 1
        else:
            self._enqueue(_Sent(unit.key, content), items)

    def _enqueue(self, unit: _Sent, items: Items) -> None:
        start = 0
        while start < len(items):
            if self._queued >= self._size:
                self.flush()
            end = start + max(1, self._size - self._queued)
            self._queue.append(_Part(unit, items[start:end]))
            self._queued += len(self._queue[-1])
            unit.waiting += 1
            start = end
        unit.waiting -= 1
        self._let_go()

    def flush(self) -> None:
        """Send what waits, and note the units that are complete by that."""
        batches = deque([list(self._queue)])
        self._queue.clear()
        self._queued = 0
        while batches and self.stopped is None:
            batch = batches.popleft()
            if not batch:
                continue
            answer = self._sender.send([item for part in batch for item in part.items])
            batches.extendleft(reversed(self._judge(batch, answer)))
        self._queue.extend(part for batch in batches for part in batch)
        self._let_go()

    def _judge(self, batch: list[_Part], answer: Answer) -> list[list[_Part]]:
        """Take note of an answer; what of a batch is to be sent otherwise."""
        verdict = answer.verdict
        if verdict is Verdict.TAKEN:
            self._broken = 0
            self._report(answer)
            self.items += sum(map(len, batch)) - answer.rejected
            for at, part in enumerate(batch):
                part.unit.hopeless = 0
                if answer.rejected:
                    # It does not say of which unit they were.
                    self._refuse(part, answer, 0 if at else answer.rejected)
                self._settle(part.unit)
            return []
        if verdict in (Verdict.LATER, Verdict.DENIED, Verdict.NOWHERE):
            self.stopped = answer
            return [batch]
        if verdict is Verdict.TOO_LARGE:
            self._size = max(1, min(self._size, sum(map(len, batch)) // 2))
        if len(batch) > 1:
            at = len(batch) // 2
            return [batch[:at], batch[at:]]
        [part] = batch
        if verdict is Verdict.TOO_LARGE and len(part) > 1 and part.unit.hopeless < _HOPELESS:
            part.unit.waiting += 1
            at = len(part) // 2
            return [[_Part(part.unit, half)] for half in (part.items[:at], part.items[at:])]
        if verdict is Verdict.UNCLEAR:
            self._leave(part.unit)
            self._broken += 1
            if self._broken >= _BROKEN:
                self.stopped = answer
            self._report(answer)
        else:
            part.unit.hopeless += verdict is Verdict.TOO_LARGE
            self._refuse(part, answer, len(part))
        self._settle(part.unit)
        return []

    def _refuse(self, part: _Part, answer: Answer, count: int) -> None:
        part.unit.rejected[answer.code] += count
        self.rejected[answer.code] += count
        self._report(answer)

    def _report(self, answer: Answer) -> None:
        if answer.said and answer.said not in self.messages and len(self.messages) < 3:
            self.messages.append(answer.said)

    def _settle(self, unit: _Sent) -> None:
        """One part less is waited for; note the unit if it was the last."""
        unit.waiting -= 1
        if unit.waiting or unit.left:
            return
        self.sent += not unit.rejected
        self.given_up += bool(unit.rejected)
        self._offsets.note(self.destination.key, unit.key, unit.content, unit.rejected)

    def _leave(self, unit: _Sent) -> None:
        """It is to be sent again."""
        self.left += not unit.left
        unit.left = True

    def _let_go(self) -> None:
        """Where nothing more is sent for now, let go of what waits."""
        if self.stopped is not None:
            for part in self._queue:
                self._leave(part.unit)
            self._queue.clear()
            self._queued = 0


def send(
    units: Iterable[Unit],
    destinations: Sequence[Destination],
    offsets: Offsets,
    encoder: Encoder,
    size: int,
) -> Sequence[Lane]:
    """Send what each collector does not have yet; what became of it, by collector.

    A collector that takes nothing now, in the time that the OTEL_* variables allow for one request,
    is not asked again.

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
        stack.enter_context(quiet())
        lanes = [
            Lane(place, stack.enter_context(closing(Sender(place, encoder))), size, offsets)
            for place in destinations
        ]
        for unit in units:
            for lane in lanes:
                lane.take(unit, encoder)
        for lane in lanes:
            lane.flush()
    return lanes


def deliver(
    plan: Plan, destinations: Sequence[Destination], offsets: Offsets, encoder: Encoder, size: int
) -> Iterator[str]:
    """Send what each collector does not have yet of a whole plan, as :func:`send` does.

    Returns:
        Lines that say what was done.

    Raises:
        ProbeError: A collector does not have everything; what it said to that.
    """
    lanes = send(plan.units(), destinations, offsets, encoder, size)
    yield f"run {plan.context.run}: sent to"
    yield from (_line(lane) for lane in lanes)
    if plan.waiting:
        yield f"  {plan.waiting:,} steps are going on: repeat the command when they are over"
    if plan.unclear:
        yield (
            f"  {plan.unclear:,} open spans were omitted: whether their process runs is"
            " unknown here"
        )
    found = [*map(complaint, lanes), *map(_rejection, lanes)]
    if any(found):
        raise ProbeError("; ".join(filter(None, found)))


def _line(lane: Lane) -> str:
    what = "spans" if lane.destination.signal == "traces" else "points of metrics"
    units = lane.sent + lane.given_up
    line = f"  {lane.destination.shown}: {lane.items:,} {what} in {units:,} units"
    line += f", {lane.before:,} units were there already" if lane.before else ""
    noted = lane.messages and not lane.given_up and not lane.left
    return line + (f"; it says: {' | '.join(lane.messages)}" if noted else "")


def complaint(lane: Lane) -> str:
    """What of a lane is to be sent again, and why; empty if nothing is."""
    if not lane.left:
        return ""
    destination = lane.destination
    why = lane.messages[-1:] if lane.stopped is None else [lane.stopped.said]
    hint = ""
    if destination.protocol != "grpc" and ":4317" in destination.shown:
        hint = " (port 4317 usually speaks gRPC: --protocol grpc)"
    return (
        f"{destination.shown} did not take {lane.left:,} units of {destination.signal}:"
        f" {''.join(why) or 'no reason given'}{hint}; repeat the command to send the rest"
    )


def _rejection(lane: Lane) -> str:
    """What a collector refused for good; empty if nothing."""
    count = lane.rejected + lane.known
    if not count:
        return ""
    what = "spans" if lane.destination.signal == "traces" else "points"
    reasons = ", ".join(f"{code}: {number:,}" for code, number in sorted(count.items()))
    said = f"; it said: {' | '.join(lane.messages)}" if lane.messages and lane.rejected else ""
    return (
        f"{lane.destination.shown} refused {sum(count.values()):,} {what} for good"
        f" ({reasons}{said}), which keeps nothing else back; once the cause is gone, --rejected"
        " sends them again"
    )
