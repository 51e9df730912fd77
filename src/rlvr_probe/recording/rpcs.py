"""Joins the two sides of a call of a worker group: who called, and every rank that did it.

No id travels with a call. Each side counts the calls of a method of a group, and its count is in
the row: a lost row shifts nothing. A count that started again, with an actor that was restarted, is
recognised by time: what a rank did lies between the dispatch and the result, or where the caller
did not wait for that, starts before the next dispatch. What does not fit is not joined.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlvr_probe.recording.batches import Member
from rlvr_probe.recording.clock import RunClock
from rlvr_probe.recording.coarse_rows import RpcRow

__all__ = ["JoinedRpcs", "join_rpcs"]

_Key = tuple[str, str, int]
"""Group, method, call."""


@dataclass(slots=True)
class JoinedRpcs:
    """Which rows are sides of one call.

    Attributes:
        number: By index of a process and span id, the number of the call.
        calls: Joined calls: key, and how many ranks did it.
        unjoined: Calls that were not joined, whichever side recorded them.
    """

    number: dict[int, dict[int, int]] = field(default_factory=dict)
    calls: list[tuple[_Key, int]] = field(default_factory=list)
    unjoined: int = 0


@dataclass(frozen=True, slots=True)
class _Side:
    member: Member
    row: RpcRow


def join_rpcs(members: Sequence[Member], clock: RunClock) -> JoinedRpcs:
    """Join the calls of one attempt.

    Args:
        members: Its processes.
        clock: Clock of the run.
    """
    callers, workers = dict[_Key, list[_Side]](), dict[_Key, list[_Side]]()
    for member in members:
        for row in member.recorded.journal.spans:
            if isinstance(row, RpcRow):
                known = callers if row.rank is None else workers
                known.setdefault(row.key, []).append(_Side(member, row))
    joined = JoinedRpcs()
    dispatched = _dispatches(callers, clock)
    done = dict[tuple[str, str], int]()
    for group, method, call in workers:
        done[group, method] = max(call, done.get((group, method), 0))
    for key, calls in callers.items():
        ranks = _ranks(calls[0], workers.get(key, ()), dispatched, clock) if len(calls) == 1 else []
        last = _is_last(calls[0], dispatched) and done.get(key[:2], 0) > key[2]
        # A rank did a later call whose dispatch is unknown: what was done may be that call.
        if ranks and not (last and not calls[0].row.attributes.get("waits", 1)):
            for side in (calls[0], *ranks):
                by_span = joined.number.setdefault(side.member.index, {})
                by_span[side.row.id] = len(joined.calls)
            joined.calls.append((key, len(ranks)))
    joined.unjoined = len(callers.keys() | workers.keys()) - len(joined.calls)
    return joined


_Dispatches = dict[tuple[int, str, str], tuple[list[int], list[int]]]
"""By process, group and method: calls that are known, ascending, and when each was dispatched."""


def _dispatches(callers: dict[_Key, list[_Side]], clock: RunClock) -> _Dispatches:
    found = dict[tuple[int, str, str], list[tuple[int, int]]]()
    for (group, method, call), sides in callers.items():
        for side in sides:
            at = clock.at(side.member.recorded, side.row.start_ns)
            found.setdefault((side.member.index, group, method), []).append((call, at))
    return {
        key: ([call for call, _ in sorted(calls)], [at for _, at in sorted(calls)])
        for key, calls in found.items()
    }


def _ranks(
    caller: _Side, workers: Sequence[_Side], dispatched: _Dispatches, clock: RunClock
) -> list[_Side]:
    """What every rank did of a call, by time too; empty unless every rank is there.

    A rank that restarted may have counted up to the same number again, at another time.
    """
    row, recorded = caller.row, caller.member.recorded
    start, end = clock.at(recorded, row.start_ns), clock.at(recorded, row.end_ns)
    waits = row.attributes.get("waits", 1)
    until = None if waits else _next_dispatch(caller, dispatched, clock)
    if not waits and until is None:
        return []
    found = list[_Side]()
    for side in workers:
        process = side.member.recorded
        first, last = clock.at(process, side.row.start_ns), clock.at(process, side.row.end_ns)
        bound = end if until is None or until < 0 else until
        if not waits and process.header.clock != recorded.header.clock:
            # Another clock may be late by a little, and the next call's start seem to be before it.
            bound = start + (bound - start) // 2
        inside = last <= end if waits else until == -1 or first < bound
        if start <= first and inside:
            found.append(side)
    # A row may claim a group of any size.
    every = len(found) == row.ranks and len({side.row.rank for side in found}) == row.ranks
    return found if every and all(side.row.ranks == row.ranks for side in found) else []


def _is_last(caller: _Side, dispatched: _Dispatches) -> bool:
    """Whether no later dispatch of the method is known."""
    group, method, call = caller.row.key
    return dispatched[caller.member.index, group, method][0][-1] == call


def _next_dispatch(caller: _Side, dispatched: _Dispatches, clock: RunClock) -> int | None:
    """When the next call of the method was dispatched, or a time before which it was not, ns.

    -1 if there was none, None if unknown: with rows of the caller missing, the next known call may
    not be the next. Rows are written in their order: where the end of training is recorded, so is
    everything that was dispatched before, even if the process was killed later.
    """
    group, method, call = caller.row.key
    calls, times = dispatched[caller.member.index, group, method]
    place = bisect_left(calls, call) + 1
    if place < len(calls):
        return times[place] if calls[place] == call + 1 else None
    recorded, journal = caller.member.recorded, caller.member.recorded.journal
    if +journal.skipped or journal.reported:
        return None
    if journal.ended:
        return -1
    over_ns = journal.over_ns
    return clock.at(recorded, over_ns) if caller.row.end_ns <= over_ns else None
