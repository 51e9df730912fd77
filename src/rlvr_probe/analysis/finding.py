"""What ``rlvr-probe stuck`` finds of each process of a run, and of the run as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rlvr_probe.analysis.launches import launches
from rlvr_probe.analysis.limits import Limit
from rlvr_probe.recording.follow.member import Member, Work

__all__ = ["WRONG", "Finding", "Standing", "Verdict", "standing_of"]

Verdict = Literal[
    "died", "silent", "missing", "starved", "overdue", "gone", "apart", "unknown", "open", "idle"
]  # fmt: skip
"""``died``: while others of its job go on. ``silent``: it runs, and no thread of the probe in it
does; on another machine, others of its job were seen for much longer. ``missing``: a rank of its
role is overdue, further on, and it has done nothing since. ``starved``: its step is past its limit,
it generates, and its filter passes nothing, as far as is known. ``overdue``: open past its limit.
``gone``: with all of its job, and training did not return. ``apart``: it is not where most ranks of
its role wait. ``unknown``: too few to compare with, and not past its limit. ``open``: nothing is
wrong with it. ``idle``: it has nothing open.

In this order, the most suspicious first."""

WRONG: Final[frozenset[Verdict]] = frozenset(
    ("died", "silent", "missing", "starved", "overdue", "gone")
)
"""What makes a run stuck. That a rank is ``apart`` may be as it should be."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One process by an innermost open span; a process with several of them has several findings.

    Attributes:
        member: The process.
        work: The innermost span that is overdue, else the innermost one; None where it has none
            open.
        inside: Spans around it, the nearest first.
        age_s: Since its start, until now or until the process was last seen.
        silent_s: Since its last sign of life; of one of another machine that is silent, how long
            others of its job gave one after it, by wall clocks; None of any other there.
        before, p50_s, p99_s, longest_s: Spans of its kind that ended, how many and how long they
            took; None where there are none.
        verdict: What is to be thought of it.
        limit: For how long it may be open; None where nothing is.
        moved_s: Since something last ended in it, where that shows that it goes on; None else.
        waiting: Ranks of its role that are overdue further on than it has come.
        at: What is open inside ``work``, if ``work`` is not the innermost; None else.
    """

    member: Member
    work: Work | None
    inside: tuple[Work, ...]
    age_s: float | None
    silent_s: float | None
    before: int
    p50_s: float | None
    p99_s: float | None
    longest_s: float | None
    verdict: Verdict
    limit: Limit | None = None
    moved_s: float | None = None
    waiting: int = 0
    at: Work | None = None

    @property
    def thread(self) -> tuple[int, int | None]:
        """Pid and native id of the thread that is at it; None where that is not known."""
        work = self.at or self.work
        return self.member.header.pid, None if work is None else work.thread

    @property
    def times(self) -> float | None:
        """Its age, in 99th percentiles of its kind."""
        return self.age_s / self.p99_s if self.age_s is not None and self.p99_s else None


Outcome = Literal["stuck", "unknown", "usual", "idle", "over"]
"""``stuck``: something is wrong. ``unknown``: too little to compare with, or whether processes live
is not known. ``usual``: what is open is within its limits. ``idle``: nothing that is recorded is
open. ``over``: no process of it is left, and none is missed."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A run as a whole.

    Attributes:
        outcome: What is to be thought of it.
        states: How many processes are in each state; ``ended`` are those that were there until
            their training was over.
        trained, returned: Whether any process trained, and whether the last training of each that
            did returned by itself.
        seen_s: Since the last sign of life of any process, by wall clocks; negative where that of
            another machine is ahead.
    """

    outcome: Outcome
    states: Counter[str]
    trained: bool
    returned: bool
    seen_s: float


def standing_of(members: Sequence[Member], findings: Sequence[Finding], wall_ns: int) -> Standing:
    """How the launches that are not past stand.

    Args:
        members: Processes of one run.
        findings: What is found of them.
        wall_ns: Now, by the wall clock of this machine.
    """
    states: Counter[str] = Counter()
    seen_ns, returned, trained = 0, True, False
    for launch in launches(members):
        seen_ns = max(seen_ns, launch.seen_ns)
        for process in launch.members:
            states["ended" if launch.outlived(process) else process.state] += 1
            trained = trained or process.trained
            returned = returned and (process.returned or not process.trained)
    outcome, returned = _outcome(states, findings), trained and returned
    return Standing(outcome, states, trained, returned, (wall_ns - seen_ns) / 1e9)


def _outcome(states: Counter[str], findings: Sequence[Finding]) -> Outcome:
    verdicts = {finding.verdict for finding in findings}
    if verdicts & WRONG:
        return "stuck"
    if not states["running"] and not states["unknown"]:
        return "over"
    if "unknown" in verdicts or states["unknown"]:
        return "unknown"
    return "usual" if verdicts & {"open", "apart"} else "idle"
