"""One clock for a run: CLOCK_MONOTONIC is shared per boot; boots are aligned by wall clock.

Wall clocks of two machines may be seconds apart. Ranks that did the same trainer step did it at
overlapping times, which bounds the error; an alignment outside that bound is moved to its edge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

from rlvr_probe.model import names
from rlvr_probe.trace.load import Recorded

__all__ = ["RunClock", "align"]

_Intervals = Mapping[tuple[str, int, int], tuple[int, int]]
"""(job, session, step) to the latest start and earliest end of it, ns."""


@dataclass(frozen=True, slots=True)
class RunClock:
    """Places CLOCK_MONOTONIC of every boot on the clock of the run.

    Attributes:
        shift_ns: By clock key: what to add.
        notes: How good that is.
    """

    shift_ns: Mapping[str, int]
    notes: tuple[str, ...]

    def at(self, process: Recorded, mono_ns: int) -> int:
        """Run time of a moment of ``process``, ns."""
        return mono_ns + self.shift_ns[process.header.clock]


def align(processes: Sequence[Recorded]) -> RunClock:
    """The clock of a run; 0 is the start of its first process."""
    by_clock = dict[str, list[Recorded]]()
    for process in processes:
        by_clock.setdefault(process.header.clock, []).append(process)
    if not by_clock:
        return RunClock({}, ())
    # The lowest median: a wall clock stepped during the run moves the minority only.
    shift = {
        clock: median_low(one.header.epoch_ns - one.header.mono_ns for one in members)
        for clock, members in by_clock.items()
    }
    sizes = Counter({clock: len(members) for clock, members in by_clock.items()})
    reference = sizes.most_common(1)[0][0]
    notes = list[str]()
    widths = list[int]()
    for clock in by_clock.keys() - {reference}:
        low, high = _bounds(
            _intervals(by_clock[reference], shift[reference]),
            _intervals(by_clock[clock], shift[clock]),
        )
        if low is None or high is None:
            continue
        if low > high:
            notes.append("clocks of two machines contradict each other: one was set during the run")
            continue
        widths.append(high - low)
        error = min(max(0, low), high)
        if error:
            shift[clock] += error
            notes.append(
                f"wall clocks of two machines were at least {abs(error) / 1e9:.1f} s apart:"
                " corrected by the steps they did together"
            )
    if len(by_clock) > 1:
        good = f"{max(widths) / 1e9:.1f} s" if len(widths) == len(by_clock) - 1 else "their error"
        notes.append(
            f"times of {len(by_clock)} machines or boots are aligned by wall clock: between them,"
            f" differences below {good} are not resolved"
        )
    zero = min(
        one.header.mono_ns + shift[clock] for clock, members in by_clock.items() for one in members
    )
    return RunClock({clock: value - zero for clock, value in shift.items()}, tuple(sorted(notes)))


def _intervals(processes: Sequence[Recorded], shift_ns: int) -> _Intervals:
    found = dict[tuple[str, int, int], tuple[int, int]]()
    for process in processes:
        for span in process.journal.spans:
            session, step = span.attributes.get("session", 0), span.attributes.get("step")
            if span.name != names.STEP.name or type(session) is not int or type(step) is not int:
                continue
            key = (process.header.job, session, step)
            start, end = span.start_ns + shift_ns, span.end_ns + shift_ns
            before = found.get(key, (start, end))
            found[key] = (max(before[0], start), min(before[1], end))
    # A step done again after a restart took place twice: it bounds nothing.
    return {key: times for key, times in found.items() if times[0] < times[1]}


def _bounds(reference: _Intervals, other: _Intervals) -> tuple[int | None, int | None]:
    """What may be added to ``other`` so that every common step overlaps, ns."""
    common = reference.keys() & other.keys()
    if not common:
        return None, None
    return (
        max(reference[key][0] - other[key][1] for key in common),
        min(reference[key][1] - other[key][0] for key in common),
    )
