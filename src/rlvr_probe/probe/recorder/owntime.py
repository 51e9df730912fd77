"""What the probe's own work costs users' threads, by the place that does it.

CPU time alone would miss a reader that waits: for a lock, a device, a server. Wall time alone would
count what the machine does to everybody: on one with more threads than cores the scheduler takes
the processor away inside a hook as often as anywhere else. So the wall time of every visit is
looked at, which costs one clock read, and:

* a short visit counts by its CPU time, of which one in :data:`SAMPLE` is taken;
* a place whose visit was long is watched from then on: CPU time and context switches of each visit.
  A long visit counts by its CPU time and, if the thread gave the processor away by itself, by its
  wall time. Losing the processor is not counted.

What happens to any code now and then, a garbage collection or a wait for the interpreter lock,
counts little: one visit counts :data:`CAP_NS` at most until long visits are the place's habit.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from typing import Any

__all__ = ["CAP_NS", "LONG_NS", "SAMPLE", "Account", "before", "culprits"]

SAMPLE = 31
"""One visit in so many is timed by CPU time."""

LONG_NS = 1_000_000
"""A visit longer than this is looked at one by one."""

CAP_NS = 75_000_000
"""What a single long visit counts at most; a quarter of what a window allows."""

_HABIT = 3
_MEMORY = 64

_Before = tuple[int, int]

try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # not Linux: every long visit may have waited

    def _switches() -> int:
        return -1

else:

    def _switches() -> int:
        # 0.4 us; what it says of CPU time is as coarse as the scheduler's tick.
        return getrusage(RUSAGE_THREAD).ru_nvcsw


def before(account: Account) -> _Before:
    """What is to be known at the start of a visit that is timed. 0.6 to 1 us."""
    return time.thread_time_ns(), _switches() if account.watched else 0


class Account:
    """What one place, a hook point or a callback, has cost.

    Threads may share it: a count lost between two of them does no harm.

    Attributes:
        owner: The recorder that keeps it.
        place: Its name: target of the hook point, or function.
        tick: Next number. Visits are numbered by place: those of all places together would come in
            a pattern, of which every 31st is perhaps always the same.
        mutable: Whether it can be muted: nothing that others rely on is done there.
        muted: It cost too much: nothing is read there from now on.
        watched: Every visit is timed, because one was long.
        own_ns: What is counted in the window that lasts, ns.
    """

    __slots__ = (
        "_long",
        "_visits",
        "mutable",
        "muted",
        "own_ns",
        "owner",
        "place",
        "tick",
        "watched",
    )

    def __init__(self, place: str, owner: Any, first: int = 1) -> None:
        """Start an account.

        Args:
            place: Its name.
            owner: The recorder.
            first: Number of the first visit; the one divided by :data:`SAMPLE` is timed.
        """
        self.place = place
        self.owner = owner
        self.tick = itertools.count(first).__next__
        self.mutable = True
        self.muted = False
        self.start_over()

    def start_over(self) -> None:
        """Forget everything but that it is muted: in a forked child."""
        self.watched = False
        self.own_ns = self._visits = self._long = 0

    def charge(self, spent_ns: int, began: _Before | None) -> int:
        """Count a visit that was timed, or was long; what it counts, ns.

        Args:
            spent_ns: Its wall time.
            began: From :func:`before`; None if it was not timed.
        """
        counted = 0
        if began is not None:
            cpu_ns = time.thread_time_ns() - began[0]
            if self.watched:
                counted = self._watch(spent_ns, cpu_ns, began[1])
            else:
                # Not times 31: that would make 30 ms of one that took a millisecond at last.
                counted = cpu_ns if spent_ns > LONG_NS else SAMPLE * cpu_ns
            self.own_ns += counted
        if spent_ns > LONG_NS:
            self.watched = True
        return counted

    def _watch(self, spent_ns: int, cpu_ns: int, switches: int) -> int:
        self._visits += 1
        if self._visits >= _MEMORY:
            self._visits //= 2
            self._long //= 2
            self.watched = self._long > 0
        if spent_ns <= LONG_NS:
            return cpu_ns
        now = _switches()
        counted = spent_ns if now < 0 or now > switches else cpu_ns
        self._long += counted > LONG_NS
        habit = self._long >= _HABIT and 4 * self._long >= self._visits
        return counted if habit else min(counted, CAP_NS)


def culprits(accounts: Iterable[Account], spent_ns: int, limit_ns: float) -> list[Account]:
    """The one or two places that explain too much own time, if muting them would help.

    None if it is the probe as a whole, or a place that cannot be muted, or was already.

    Args:
        accounts: All of them, with what they cost in the window.
        spent_ns: What everything cost, the flush thread included.
        limit_ns: What it may cost.
    """
    worst = sorted(accounts, key=lambda account: -account.own_ns)[:2]
    for count in (1, 2):
        found = worst[:count]
        explained = sum(account.own_ns for account in found)
        if 2 * explained > spent_ns and spent_ns - explained <= limit_ns:
            found = [account for account in found if account.own_ns]
            helps = all(account.mutable and not account.muted for account in found)
            return found if helps else []
    return []
