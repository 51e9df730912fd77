"""How far back a step reaches: what it trains on may be of the steps before it."""

from __future__ import annotations

from collections import deque
from typing import Final

from rlvr_probe.model import names
from rlvr_probe.model.trace import Step

__all__ = ["Lookback"]

_FIRST: Final = 4
"""Steps from which it is learnt how far back one reaches; until then it may be two."""

_UNKNOWN: Final = 2
_MOST: Final = 8


class Lookback:
    """Where the rows start that the next step of a run may need; times by wall clock, ns.

    Attributes:
        queued: Trajectories wait in a queue, for an unknown time.
    """

    def __init__(self) -> None:
        """Know of no step."""
        self.queued = False
        self._steps = deque[tuple[int, int]](maxlen=_MOST)
        """Start of each of the last steps, and its end on the rank that was first."""
        self._count = 0
        self._back = 0

    def note(self, step: Step, zero_ns: int) -> None:
        """Take note of the next step that is over.

        Args:
            step: As it is known now.
            zero_ns: Added to its times.
        """
        start_ns = min((span.start_ns for span in step.spans), default=None)
        if start_ns is None:
            return
        earliest = zero_ns + _earliest(step)
        back = sum(end_ns > earliest for _, end_ns in self._steps)
        self._back = max(self._back, back and back + 1)
        ends = [span.end_ns for span in step.spans if span.name == names.STEP.name]
        self._steps.append((zero_ns + start_ns, zero_ns + min(ends, default=start_ns)))
        self._count += 1

    @property
    def start_ns(self) -> int | None:
        """What ended before this, the next step does not need; None if that is not known yet."""
        if not self._steps:
            return None
        back = min(self._back if self._count >= _FIRST else _UNKNOWN, _MOST)
        if self.queued:
            back = _MOST
        if not back:
            return self._steps[-1][1]
        return self._steps[max(0, len(self._steps) - back)][0]

    @property
    def least_ns(self) -> int:
        """No step needs what ended before."""
        return self._steps[0][0] if self._steps else 0


def _earliest(step: Step) -> int:
    """Before when no row of a step ended, as far as is recorded."""
    ends = [span.end_ns for span in step.spans]
    for batch in (*step.batches, *step.evaluations):
        for shard in batch.shards:
            # Turns of a trajectory end after its start.
            ends += [times[0] for times in shard.times_ns or () if times is not None]
            ends += [at for at in (shard.start_ns, shard.recorded_ns) if at is not None]
    return min(ends)
