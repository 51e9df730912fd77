"""Requests of inference engines: read, their two sides put together, joined with turns.

The process that asks an engine and the one that schedules its work each tell what they know of a
request. They may be one process, or the second is a child of the first. A request is joined with a
turn only if the turn was open around it where it was asked for, or if the turn has its id and is
the only one that can have made it; what is not, stays a request of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from rlvr_probe.model.requests import Request, RequestColumns
from rlvr_probe.recording.clock import RunClock
from rlvr_probe.recording.load import Recorded

__all__ = ["Requests"]

_CLIENT: Final = 0
"""The side of a row, as its place in ``names.TELLERS``."""


class Requests:
    """The requests of one attempt.

    Attributes:
        found: All of them, each once.
        joined: 1 for each that a turn has.
        sides: Rows of schedulers that are of a request which is known from its client, of which
            nobody can tell.
    """

    def __init__(self, members: Iterable[tuple[int, Recorded]], clock: RunClock) -> None:
        """Put the sides of each request together.

        Args:
            members: Processes of the attempt, with their index in the run.
            clock: Clock of the run.
        """
        self.found = RequestColumns()
        self.joined = bytearray()
        self.sides = 0
        self._clock = clock
        self._by_name = dict[int, list[int]]()
        self._by_parent = dict[tuple[int, int], list[int]]()
        self._clocks = dict[int, str]()
        telling = [(index, one) for index, one in members if len(one.journal.requests)]
        self._add_all(telling)

    @property
    def unjoined(self) -> int:
        """How many no turn has."""
        return self.joined.count(0)

    def _add_all(self, telling: Sequence[tuple[int, Recorded]]) -> None:
        scheduled = dict[int, list[tuple[int, int]]]()
        asked = Counter[int]()
        for place, (_, recorded) in enumerate(telling):
            rows = recorded.journal.requests
            for at, key in enumerate(rows.key):
                if rows.side[at] == _CLIENT:
                    asked[key] += 1
                elif key:
                    scheduled.setdefault(key, []).append((place, at))
        taken = set[tuple[int, int]]()
        for index, recorded in telling:
            rows = recorded.journal.requests
            for at, side in enumerate(rows.side):
                if side != _CLIENT:
                    continue
                request, key = rows.values[at], rows.key[at]
                # Where there is one of this name, it may be given up before its engine takes it.
                alone = asked[key] == len(scheduled.get(key, ())) == 1
                others = [
                    one
                    for one in scheduled.get(key, ())
                    if one not in taken
                    if _serves(telling[one[0]][1], recorded, one[1], request, late=alone)
                ]
                if len(others) == 1:
                    taken.add(others[0])
                    other = telling[others[0][0]][1].journal.requests.values[others[0][1]]
                    request = _both(request, other)
                self._add(index, recorded, at, request)
        for place, (index, recorded) in enumerate(telling):
            rows = recorded.journal.requests
            for at, side in enumerate(rows.side):
                if side == _CLIENT or (place, at) in taken:
                    continue
                if rows.key[at] and asked[rows.key[at]]:
                    self.sides += 1
                else:
                    self._add(index, recorded, at, rows.values[at])

    def _add(self, index: int, recorded: Recorded, at: int, request: Request) -> None:
        rows, number = recorded.journal.requests, len(self.found)
        self._clocks[index] = recorded.header.clock
        self.found.append(
            replace(
                request,
                process=index,
                start_ns=self._clock.at(recorded, request.start_ns),
                end_ns=self._clock.at(recorded, request.end_ns),
            )
        )
        self.joined.append(0)
        if rows.name[at]:
            self._by_name.setdefault(rows.name[at], []).append(number)
        if rows.parent[at]:
            self._by_parent.setdefault((index, rows.parent[at]), []).append(number)

    def of_turn(
        self, index: int, recorded: Recorded, span: int, name: int, start_ns: int, end_ns: int
    ) -> int | None:
        """Number of the one request of a turn; None if none is known to be its.

        Args:
            index: Process of the turn.
            recorded: The same.
            span: Id of the turn in it.
            name: Digest of the id of its request, 0 if it does not tell.
            start_ns: Its start, on the clock of the run.
            end_ns: Its end.
        """
        found = self._by_parent.get((index, span), ())
        if not found and name:
            found = [
                one
                for one in self._by_name.get(name, ())
                if not self.joined[one] and self._within(one, recorded, start_ns, end_ns)
            ]
        if len(found) != 1 or self.joined[found[0]]:
            return None
        self.joined[found[0]] = 1
        return found[0]

    def add_told(self, request: Request) -> int:
        """Number of a request that is known from its turn alone."""
        self.found.append(request)
        self.joined.append(1)
        return len(self.found) - 1

    def _within(self, number: int, recorded: Recorded, start_ns: int, end_ns: int) -> bool:
        """Whether a request lies in the time of a turn; true where their clocks differ."""
        request = self.found[number]
        if self._clocks[request.process] != recorded.header.clock:
            return True
        return start_ns <= request.start_ns and request.end_ns <= end_ns


def _serves(
    scheduler: Recorded, client: Recorded, at: int, request: Request, *, late: bool
) -> bool:
    """Whether request ``at`` of a scheduler's process can be that of a client's process.

    Args:
        scheduler: One process.
        client: The other, or the same.
        at: Which of the scheduler's.
        request: The client's.
        late: Whether it may begin when nobody waits for it any more.
    """
    if scheduler is not client:
        ours, theirs = client.header, scheduler.header
        child = theirs.clock == ours.clock and theirs.ppid == ours.pid and theirs.host == ours.host
        if theirs.owner != ours.process and not child:
            return False
        if theirs.clock != ours.clock:
            return True
    start_ns = scheduler.journal.requests.values[at].start_ns
    return request.start_ns <= start_ns and (late or start_ns <= request.end_ns)


def _both(client: Request, scheduler: Request) -> Request:
    """One request of its two sides: lengths and end as asked for, times as scheduled."""
    return replace(
        client,
        prompt_tokens=_first(client.prompt_tokens, scheduler.prompt_tokens),
        response_tokens=_first(client.response_tokens, scheduler.response_tokens),
        finish=_first(client.finish, scheduler.finish),
        cached_tokens=_first(scheduler.cached_tokens, client.cached_tokens),
        queue_s=_first(scheduler.queue_s, client.queue_s),
        prefill_s=_first(scheduler.prefill_s, client.prefill_s),
        decode_s=_first(scheduler.decode_s, client.decode_s),
        preemptions=_first(scheduler.preemptions, client.preemptions),
    )


def _first(one: Any, other: Any) -> Any:
    return other if one is None else one
