"""One signal on its way to its collector: in batches, of which what is refused is left behind.

What a collector refuses for good is found by halves and given up, so that it keeps nothing else.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rlvr_probe_otlp.planning.data_model import PlannedSpan, Point, Unit
from rlvr_probe_otlp.planning.plan_json import digest
from rlvr_probe_otlp.wire.answers import Answer, Verdict
from rlvr_probe_otlp.wire.connection import Destination
from rlvr_probe_otlp.wire.offsets import Offsets
from rlvr_probe_otlp.wire.sdk_encoding import Encoder
from rlvr_probe_otlp.wire.transport import Sender

__all__ = ["Lane"]

_BROKEN: Final = 3
"""So many parts in a row that end in an error there: the collector is the reason, not they."""
_HOPELESS: Final = 3
"""So many single spans or points of a unit that are too large."""


@dataclass(slots=True)
class _Sent:
    """A unit on its way.

    Attributes:
        waiting: Parts that were not answered yet.
        whole: Every part was queued.
        left: Some of it shall be sent again.
        rejected: Spans or points that were refused for good, by why.
        hopeless: Single spans or points in a row that were too large.
    """

    key: str
    content: str
    waiting: int = 0
    whole: bool = False
    left: bool = False
    rejected: Counter[str] = field(default_factory=Counter)
    hopeless: int = 0


@dataclass(frozen=True, slots=True)
class _Part:
    """What of one unit is in one request."""

    unit: _Sent
    spans: Sequence[PlannedSpan]
    points: Sequence[Point]

    def __len__(self) -> int:
        return len(self.spans) + len(self.points)

    def halves(self) -> tuple[_Part, _Part]:
        """The same in two."""
        at = len(self) // 2
        return (
            _Part(self.unit, self.spans[:at], self.points[:at]),
            _Part(self.unit, self.spans[at:], self.points[at:]),
        )


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
        if self._offsets.has(self.destination.key, unit.key, told):
            self.before += 1
            return
        rejected = self._offsets.rejected(self.destination.key, unit.key, told)
        if rejected is not None:
            self.known.update(rejected)
            return
        if self.stopped is not None:
            self.left += 1
            return
        sent = _Sent(unit.key, told)
        begin, count = 0, max(len(spans), len(points))
        while begin < count:
            if self._queued >= self._size:
                self.flush()
            end = begin + max(1, self._size - self._queued)
            self._queue.append(_Part(sent, spans[begin:end], points[begin:end]))
            self._queued += len(self._queue[-1])
            sent.waiting += 1
            begin = end
        sent.whole = True
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
            answer = self._sender.send(
                [span for part in batch for span in part.spans],
                [point for part in batch for point in part.points],
            )
            again = self._judge(batch, answer)
            batches.extendleft(reversed(again))
        self._queue.extend(part for batch in batches for part in batch)
        self._let_go()

    def _judge(self, batch: list[_Part], answer: Answer) -> list[list[_Part]]:
        """Take note of an answer; what of a batch is to be sent otherwise."""
        verdict = answer.verdict
        if verdict is Verdict.TAKEN:
            self._broken = 0
            self._tell(answer)
            self.items += sum(map(len, batch)) - answer.rejected
            if answer.rejected:
                # It does not say of which unit they were.
                self._refuse(batch[0], answer, answer.rejected)
                for part in batch[1:]:
                    self._refuse(part, answer, 0)
            for part in batch:
                part.unit.hopeless = 0
                self._settle(part)
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
            return [[half] for half in part.halves()]
        if verdict is Verdict.UNCLEAR:
            self._leave(part.unit)
            self._broken += 1
            if self._broken >= _BROKEN:
                self.stopped = answer
            self._tell(answer)
        else:
            part.unit.hopeless += verdict is Verdict.TOO_LARGE
            self._refuse(part, answer, len(part))
        self._settle(part)
        return []

    def _refuse(self, part: _Part, answer: Answer, count: int) -> None:
        part.unit.rejected[answer.code] += count
        self.rejected[answer.code] += count
        self._tell(answer)

    def _tell(self, answer: Answer) -> None:
        if answer.said and answer.said not in self.messages and len(self.messages) < 3:
            self.messages.append(answer.said)

    def _settle(self, part: _Part) -> None:
        """One part less is waited for; note the unit if it was the last."""
        unit = part.unit
        unit.waiting -= 1
        if unit.waiting or unit.left or not unit.whole:
            return
        where = self.destination.key
        if unit.rejected:
            self.given_up += 1
            self._offsets.give_up(where, unit.key, unit.content, unit.rejected)
        else:
            self.sent += 1
            self._offsets.note(where, unit.key, unit.content)

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
