"""What part of a run is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlvr_probe.exceptions import ProbeError
from rlvr_probe.model.trace import Attempt, Step, Trace

__all__ = ["Scope"]


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of a run, by trainer steps and by time.

    Attributes:
        numbers: First and last trainer step; None for all of them.
        start_ns, end_ns: Between them lies everything that is drawn.
    """

    numbers: tuple[int, int] | None
    start_ns: int
    end_ns: int

    @classmethod
    def of(cls, trace: Trace, numbers: tuple[int, int] | None = None) -> Scope:
        """The whole of ``trace``, or the time from the first to the last of some of its steps.

        Raises:
            ProbeError: It has none of these steps.
        """
        if numbers is None:
            starts = [0, *(process.start_ns for process in trace.processes)]
            for series in trace.devices:
                for readings in series.readings.values():
                    if len(readings):
                        starts.append(readings.times_ns[0] - readings.windows_ns[0])
            ends = (process.last_seen_ns for process in trace.processes)
            return cls(None, min(starts), max(ends, default=0))
        every = [(step.number, step.spans) for attempt in trace.attempts for step in attempt.steps]
        spans = [span for number, found in every if _in(numbers, number) for span in found]
        if not spans:
            known = sorted({number for number, found in every if found})
            said = f"from {known[0]} to {known[-1]}" if known else "none"
            asked = "-".join(str(number) for number in dict.fromkeys(numbers))
            raise ProbeError(f"the recording has no step {asked}; its steps are {said}")
        starts = [span.start_ns for span in spans]
        return cls(numbers, min(starts), max(span.end_ns for span in spans))

    def steps(self, attempt: Attempt) -> Sequence[Step]:
        """The steps of an attempt that are drawn."""
        if self.numbers is None:
            return attempt.steps
        return [step for step in attempt.steps if _in(self.numbers, step.number)]

    def meets(self, start_ns: int, end_ns: int) -> bool:
        """Whether any of this time is drawn."""
        return self.numbers is None or (start_ns < self.end_ns and end_ns >= self.start_ns)


def _in(numbers: tuple[int, int], number: int) -> bool:
    return numbers[0] <= number <= numbers[1]
