"""One clock for a run: CLOCK_MONOTONIC is shared per boot; boots are aligned by wall clock.

Wall clocks of two machines may be seconds apart. Ranks that did the same trainer step did it at
overlapping times, and what a caller waited for was done while it waited: that bounds the error. An
alignment outside that bound is moved to its edge, unless that is half as far as from one call to
the next: a count that restarted looks the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low

from rlvr_probe.model import names
from rlvr_probe.recording.coarse_rows import RpcRow
from rlvr_probe.recording.header import Header
from rlvr_probe.recording.processes import Recorded

__all__ = ["RunClock", "align"]

_Intervals = Mapping[tuple[str, int, int], tuple[int, int]]
"""(job, session, step) to the latest start and earliest end of it, ns."""


@dataclass(frozen=True, slots=True)
class RunClock:
    """Places CLOCK_MONOTONIC of every boot on the clock of the run.

    Attributes:
        shift_ns: By clock key: what to add.
        corrected_ns: By clock key, where it is not 0: what of that its wall clock does not say.
        notes: How good that is.
        epoch_ns: Wall clock at run time 0, ns since 1970, as the first process had it, or of
            several machines the one of most processes.
    """

    shift_ns: Mapping[str, int]
    notes: tuple[str, ...]
    epoch_ns: int
    corrected_ns: Mapping[str, int] = field(default_factory=dict)

    def at(self, process: Recorded, mono_ns: int) -> int:
        """Run time of a moment of ``process``, ns."""
        return mono_ns + self.shift_ns[process.header.clock]


def align(processes: Sequence[Recorded]) -> RunClock:
    """The clock of a run; 0 is the start of its first process."""
    by_clock = dict[str, list[Recorded]]()
    for process in processes:
        by_clock.setdefault(process.header.clock, []).append(process)
    if not by_clock:
        return RunClock({}, (), 0)
    # The lowest median: a wall clock stepped during the run moves the minority only.
    shift = {
        clock: median_low(head.epoch_ns - head.mono_ns for head in _headers(members))
        for clock, members in by_clock.items()
    }
    calls = _calls(processes) if len(by_clock) > 1 else []
    sizes = Counter({clock: len(members) for clock, members in by_clock.items()})
    # Of calls there are those between one caller and many.
    callers = Counter(call.caller for call in calls)
    reference = (callers or sizes).most_common(1)[0][0]
    notes, corrected = list[str](), dict[str, int]()
    widths = list[int]()
    own = _intervals(by_clock[reference], shift[reference]) if len(by_clock) > 1 else {}
    of_worker = defaultdict[str, list[_Bound]](list)
    for call in calls:
        if call.caller == reference:
            of_worker[call.worker].append(call)
    for clock in by_clock.keys() - {reference}:
        low, high = _bounds(own, _intervals(by_clock[clock], shift[clock]))
        between = of_worker[clock]
        if between:
            moved = shift[clock] - shift[reference]
            lows = [call.low_ns - moved for call in between]
            highs = [call.high_ns - moved for call in between]
            low = max(lows if low is None else [*lows, low])
            high = min(highs if high is None else [*highs, high])
        if low is None or high is None:
            continue
        if low > high:
            notes.append("clocks of two machines contradict each other: one was set during the run")
            continue
        error = min(max(0, low), high)
        if between and 2 * abs(error) >= min(call.apart_ns for call in between):
            notes.append(
                "calls between two machines do not agree with their wall clocks: not aligned by"
                " them"
            )
            continue
        widths.append(high - low)
        if error:
            shift[clock] += error
            corrected[clock] = error
            notes.append(
                f"wall clocks of two machines were at least {abs(error) / 1e9:.1f} s apart:"
                " corrected by what they did together"
            )
    if len(by_clock) > 1:
        known = len(widths) == len(by_clock) - 1
        good = f"{max(widths) / 1e9:.2g} s" if known else "their error"
        notes.append(
            f"times of {len(by_clock)} machines or boots are aligned by wall clock: between them,"
            f" differences below {good} are not resolved"
        )
    zero, first = min(
        (head.mono_ns + shift[clock], head.epoch_ns)
        for clock, members in by_clock.items()
        for head in _headers(members)
    )
    moved_by = {clock: value - zero for clock, value in shift.items()}
    # On one machine, a process that comes later leaves the time of day of what was before.
    epoch_ns = first if len(by_clock) == 1 else zero
    return RunClock(moved_by, tuple(sorted(notes)), epoch_ns, corrected)


def _headers(processes: Sequence[Recorded]) -> Iterator[Header]:
    return (process.header for process in processes)


@dataclass(frozen=True, slots=True)
class _Bound:
    """What one call that was waited for says of two clocks, ns.

    Attributes:
        caller, worker: Their keys.
        low_ns, high_ns: What the time of the worker's clock may at least and at most lack.
        apart_ns: Time without such a call before the next one.
    """

    caller: str
    worker: str
    low_ns: int
    high_ns: int
    apart_ns: int


def _calls(processes: Sequence[Recorded]) -> list[_Bound]:
    """Bounds from calls that were waited for, where there is one of their name on either side."""
    callers = dict[tuple[str, str, str, int], list[tuple[str, RpcRow]]]()
    workers = dict[tuple[str, str, str, int, int], list[tuple[str, RpcRow]]]()
    for process in processes:
        clock, owner = process.header.clock, process.header.owner or process.header.process
        for row in process.journal.spans:
            if not isinstance(row, RpcRow):
                continue
            if row.rank is not None:
                workers.setdefault((owner, *row.key, row.rank), []).append((clock, row))
            elif row.attributes.get("waits", 1):
                callers.setdefault((owner, *row.key), []).append((clock, row))
    bounds = list[_Bound]()
    for (owner, group, method, call, _), rows in workers.items():
        calls = callers.get((owner, group, method, call), [])
        after = callers.get((owner, group, method, call + 1), [])
        if len(rows) == len(calls) == len(after) == 1:
            [(worker, row)], [(caller, asked)], [(_, later)] = rows, calls, after
            if caller != worker:
                low, high = asked.start_ns - row.start_ns, asked.end_ns - row.end_ns
                apart = later.start_ns - asked.end_ns
                bounds.append(_Bound(caller, worker, low, high, apart))
    return bounds


def _intervals(processes: Sequence[Recorded], shift_ns: int) -> _Intervals:
    intervals = dict[tuple[str, int, int], tuple[int, int]]()
    for process in processes:
        for span in process.journal.spans:
            session, step = span.attributes.get("session", 0), span.attributes.get("step")
            if span.name != names.STEP.name or type(session) is not int or type(step) is not int:
                continue
            key = (process.header.job, session, step)
            start, end = span.start_ns + shift_ns, span.end_ns + shift_ns
            before = intervals.get(key, (start, end))
            intervals[key] = (max(before[0], start), min(before[1], end))
    # A step done again after a restart took place twice: it bounds nothing.
    return {key: times for key, times in intervals.items() if times[0] < times[1]}


def _bounds(reference: _Intervals, other: _Intervals) -> tuple[int | None, int | None]:
    """What may be added to ``other`` so that every common step overlaps, ns."""
    common = reference.keys() & other.keys()
    if not common:
        return None, None
    return (
        max(reference[key][0] - other[key][1] for key in common),
        min(reference[key][1] - other[key][0] for key in common),
    )
