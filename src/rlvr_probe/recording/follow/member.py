"""A process of a run that goes on: its work, its past, and what filters left of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rlvr_probe.model import names
from rlvr_probe.model.trace import ProcessState
from rlvr_probe.recording.header import Header

__all__ = ["Member", "Past", "Sifting", "Work"]

_PASSED: Final = "surplus"
"""Reason for which a group is thrown away although it passed the filter."""
_FILTERED: Final = "filter"


@dataclass(slots=True)
class Past:
    """How long spans of one kind took that ended.

    Attributes:
        count: All of them.
        longest_ns: Of all of them.
        recent_ns: The last thousand.
    """

    count: int = 0
    longest_ns: int = 0
    recent_ns: deque[int] = field(default_factory=lambda: deque(maxlen=1_000))

    def add(self, duration_ns: int) -> None:
        """Take note of one more."""
        self.count += 1
        if duration_ns > self.longest_ns:
            self.longest_ns = duration_ns
        self.recent_ns.append(duration_ns)


@dataclass(frozen=True, slots=True)
class Work:
    """A span that has not ended, or what a trainer does outside of any step.

    Attributes:
        id: -1 of the latter.
        start_ns: CLOCK_MONOTONIC.
        step, thread: None where they are not known; the thread is a native id.
        turns: Engine calls that ended inside it.
        aside_ns: Evaluations and checkpoints that ended right inside it took so long.
    """

    id: int
    parent: int
    name: str
    detail: str
    start_ns: int
    step: int | None = None
    thread: int | None = None
    turns: int = 0
    aside_ns: int = 0


class Sifting:
    """Groups and rollouts of a trainer since its last step, or of a generator. One thread.

    Attributes:
        discarded: Groups that a filter threw away.
        passed: Groups recorded as having passed it.
        rounds: Rollouts that ended since an update of the model, of which a step may have several.
        most_discarded, most_rounds: Of any step, or before any update.
        queued: Whether it generates for a queue: what it hands over ends what was a step.
    """

    def __init__(self) -> None:
        """Nothing yet."""
        self.discarded = self.passed = self.rounds = 0
        self.most_discarded = self.most_rounds = 0
        self.queued = False

    def span(self, name: str, get: Callable[[str], Any]) -> None:
        """Take note of a span that ended.

        Args:
            name: Its name.
            get: Value of an attribute; None if it is not there.
        """
        if name in (names.STEP.name, names.UPDATE_ACTOR.name):
            self.most_rounds = max(self.most_rounds, self.rounds)
            self.rounds = 0
        if name == names.STEP.name:
            self.most_discarded = max(self.most_discarded, self.discarded)
            self.discarded = self.passed = 0
        elif name == names.ROLLOUT.name and get("mode") in (None, "train"):
            self.rounds += 1

    def selected(self, get: Callable[[str], Any]) -> None:
        """Note what became of groups, as the trainer recorded it."""
        kept, used, gone = (get(key) or () for key in ("kept", "used", "discarded"))
        if get("batch") is not None:
            self.queued = True
            if kept or used:
                self.most_discarded = max(self.most_discarded, self.discarded + len(gone))
                self.discarded = self.rounds = 0
                return
        self.passed += max(len(kept), len(used))
        if get("reason") == _PASSED:
            self.passed += len(gone)
        elif get("reason") == _FILTERED:
            self.discarded += len(gone)


@dataclass(slots=True)
class Member:
    """One process, as it was when it was last read.

    Attributes:
        work: What it is doing, outer spans first.
        past: By name of a span and detail; without a detail, all of that name.
        beats: Whether its flush thread gives signs of life: into a table, where there is one.
        last_ns: Latest end of anything that it recorded, CLOCK_MONOTONIC; 0 before there is one.
        heartbeat_ns: Latest sign of life of its flush thread, or of any row.
        role: What it is to its job, for example the class of its actor.
        rank: As its training recorded it, else its environment.
        trained: Whether it took part in training, by the same rule as ``Recorded.trained``.
        returned: Whether its last training returned by itself.
        active_ns: Latest end of a trajectory or of what is finer, CLOCK_MONOTONIC; 0 before there
            is one.
        group_size, filters: Trajectories per prompt, and 1 if a filter drops groups, 0 if not; None
            if unknown.
        sifting: What it generated since its last step ended.
        trajectories: When the last ones ended, CLOCK_MONOTONIC.
        left_ns: When it started to leave its job, which ends the others, CLOCK_MONOTONIC; 0 if it
            did not.
        interactive: Whether it runs and somebody types what it is to do, by its command.
        hidden: Whether it runs where its pid means another process than here, as in a container.
    """

    header: Header
    state: ProcessState = "unknown"
    work: Sequence[Work] = ()
    past: dict[tuple[str, str], Past] = field(default_factory=dict)
    last_ns: int = 0
    heartbeat_ns: int = 0
    role: str = ""
    rank: int | None = None
    trained: bool = False
    returned: bool = False
    active_ns: int = 0
    group_size: int | None = None
    filters: int | None = None
    sifting: Sifting = field(default_factory=Sifting)
    trajectories: deque[int] = field(default_factory=lambda: deque(maxlen=5_000))
    left_ns: int = 0
    interactive: bool = False
    hidden: bool = False
    beats: bool = True

    def wall_ns(self, time_ns: int) -> int:
        """A time of its CLOCK_MONOTONIC by the wall clock of its machine."""
        return self.header.epoch_ns + time_ns - self.header.mono_ns

    def mono_ns(self, time_ns: int) -> int:
        """A time of the wall clock by its CLOCK_MONOTONIC."""
        return time_ns - self.header.epoch_ns + self.header.mono_ns
