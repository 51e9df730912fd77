"""What a run is stuck on: what is open, against how long such things took before, and who waits.

A span is *overdue* if it has been open for three times the 99th percentile of those of its kind
that ended in its run, longer than any of them, and for ten seconds at least; with fewer than twenty
to compare with, nothing is said. A call that is overdue where it was made is so where it is done.
Calls and ranks are matched within a launch. Of overdue spans the innermost ones of a process count,
and finer ones come first: a tool call holds up its turn's trajectory, a trajectory its rollout, a
rollout the step of every rank, and a rank that does a call the controller that made it. A launch
that is over and trains again is past, and so is one that was over before it trained and was
launched again: nothing is said of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from rlvr_probe.analysis.usual import LEAST, NO_TIMES, Usual
from rlvr_probe.model import names
from rlvr_probe.trace.attempts import job_launches
from rlvr_probe.trace.pulse import Member, Work

__all__ = ["WRONG", "Finding", "Verdict", "examine", "is_stuck"]

_TIMES: Final = 3
_LEAST_S: Final = 10.0
_SILENT_S: Final = 15.0
"""A flush thread writes ten times per second; one that a busy machine holds up, less often."""
_UNDERWAY_NS: Final = 1_000_000_000
"""From where a call is made to where it is done: 12 ms were measured; a busy machine takes longer,
and wall clocks of two machines differ."""

Verdict = Literal["died", "silent", "overdue", "apart", "open", "idle", "unknown"]
"""``died``: while others of its job go on. ``silent``: it runs, and no thread of the probe in it
does. ``overdue``: see above. ``apart``: it is not where most ranks of its role wait. ``open``:
nothing is wrong with it. ``idle``: it has nothing open. ``unknown``: too few to compare with."""

WRONG: Final[frozenset[Verdict]] = frozenset(("died", "overdue", "silent"))
"""What makes a run stuck. That a rank is ``apart`` may be as it should be."""

_ORDER: Final[tuple[Verdict, ...]] = (
    "died", "overdue", "silent", "apart", "unknown", "open", "idle",
)  # fmt: skip
_FINER: Final = (
    names.TOOL_CALL.name, names.REWARD_FN.name, names.VERIFY.name, names.TURN.name,
    names.TRAJECTORY.name, names.OPTIMIZER_STEP.name,
)  # fmt: skip
_OUTER: Final = (names.RPC.name, names.EXPERIENCE.name, names.STEP.name)


@dataclass(frozen=True, slots=True)
class Finding:
    """One process, by the innermost of what it is at; one with several has several.

    Attributes:
        member: The process.
        work: The span, None where it has none open.
        inside: Spans around it, the nearest first.
        age_s: Since its begin: until now, or until the process was last seen.
        silent_s: Since its last sign of life; None on another machine.
        before, p50_s, p99_s, longest_s: Spans of its kind that ended, how many and how long they
            took; None where there are none.
        verdict: What is to be thought of it.
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

    @property
    def thread(self) -> tuple[int, int | None]:
        """Pid and native id of the thread that is at it; None where that is not known."""
        return self.member.header.pid, None if self.work is None else self.work.thread

    @property
    def times(self) -> float | None:
        """Its age, in 99th percentiles of its kind."""
        return self.age_s / self.p99_s if self.age_s is not None and self.p99_s else None


def examine(members: Sequence[Member], boot: str, now_ns: int) -> list[Finding]:
    """What each process is at, the most suspicious first.

    Args:
        members: Processes of one run.
        boot: Boot id of this machine.
        now_ns: CLOCK_MONOTONIC of this machine.
    """
    usual = Usual(members)
    found = list[Finding]()
    for launch in _launches(members):
        own = [
            finding
            for one in launch.members
            if one.state in ("running", "died", "unknown")
            for finding in _of(one, usual, boot, now_ns, launch.alive)
        ]
        found += _apart(_called(own))
    return sorted(found, key=_rank)


def is_stuck(findings: Iterable[Finding]) -> bool:
    """Whether anything is wrong that can be told."""
    return any(one.verdict in WRONG for one in findings)


def _runs(member: Member) -> bool:
    return member.state == "running"


@dataclass(frozen=True, slots=True)
class _Launch:
    """Processes of one launch, when it began and was last seen by wall clocks, ns, and its ranks.

    Wall clocks are all that two machines have in common. The ranks are those that trained; of a
    launch in which none did, all, and each says so.
    """

    members: list[Member]
    begun_ns: int
    seen_ns: int
    ranks: frozenset[tuple[bool, int | None]]
    alive: bool

    @classmethod
    def of(cls, members: list[Member]) -> _Launch:
        trained = [one for one in members if one.trained]
        return cls(
            members,
            min(one.header.epoch_ns for one in members),
            max(one.header.epoch_ns + one.heartbeat_ns - one.header.mono_ns for one in members),
            frozenset((one.trained, one.rank) for one in trained or members),
            any(_runs(one) for one in members),
        )


def _launches(members: Sequence[Member]) -> list[_Launch]:
    """All but those that are over and of which a later one took up a rank.

    Of one that trained only one that trains does: what else is started may have any rank, or none.
    """
    launches = [
        _Launch.of([members[index] for index in launch]) for launch in job_launches(members)
    ]
    last_ns = dict[tuple[bool, int | None], int]()
    for one in launches:
        for trained, rank in one.ranks:
            for place in {(trained, rank), (False, rank)}:
                last_ns[place] = max(last_ns.get(place, one.begun_ns), one.begun_ns)
    return [
        one
        for one in launches
        if one.alive or all(last_ns[rank] <= one.seen_ns for rank in one.ranks)
    ]


def _of(member: Member, usual: Usual, boot: str, now_ns: int, alive: bool) -> list[Finding]:
    runs, here = _runs(member), member.header.boot == boot
    until_ns = now_ns if runs else member.heartbeat_ns
    silent_s = max(0, now_ns - member.heartbeat_ns) / 1e9 if here and boot else None
    by_id = {work.id: work for work in member.work}
    outer = {work.parent for work in member.work}
    leaves = [work for work in member.work if work.id not in outer]
    if not leaves and member.state == "died":
        return []  # it ended between two things; how is not for here
    found = list[Finding]()
    places: Sequence[Work | None] = leaves or (None,)
    for work in places:
        past = NO_TIMES if work is None else usual.of(member, work)
        age_s = None if work is None else max(0, until_ns - work.start_ns) / 1e9
        verdict: Verdict = "open" if work is not None else "idle"
        if member.state == "died" and alive:
            verdict = "died"
        elif runs and silent_s is not None and silent_s > _SILENT_S:
            verdict = "silent"
        if age_s is not None and verdict == "open":
            if past.count < LEAST or past.p99_s is None or past.longest_s is None:
                verdict = "unknown"
            elif age_s > max(_TIMES * past.p99_s, past.longest_s, _LEAST_S):
                verdict = "overdue"
        found.append(
            Finding(
                member, work, tuple(_around(work, by_id)), age_s, silent_s if runs else None,
                past.count, past.p50_s, past.p99_s, past.longest_s, verdict,
            )
        )  # fmt: skip
    return found


def _around(work: Work | None, by_id: dict[int, Work]) -> Iterable[Work]:
    seen = set[int]()
    while work is not None and work.parent in by_id and work.parent not in seen:
        seen.add(work.parent)
        work = by_id[work.parent]
        yield work


def _called(findings: list[Finding]) -> list[Finding]:
    """Mark who does a call that is overdue where it was made, of one launch.

    It began there by as much earlier as the call was on its way: for so long only who waits for it
    would be named.
    """
    made = [one for one in findings if one.verdict == "overdue" and one.inside]
    return [
        replace(one, verdict="overdue")
        if one.verdict in ("open", "unknown")
        and not one.inside
        and any(_is_one_call(one, other) for other in made)
        else one
        for one in findings
    ]


def _is_one_call(one: Finding, other: Finding) -> bool:
    """Whether both are at the same call, by its method and when they began by wall clocks."""
    done, made = one.work, other.work
    if done is None or made is None or not done.name == made.name == names.RPC.name:
        return False
    underway_ns = _begun_ns(one.member, done) - _begun_ns(other.member, made)
    return done.detail == made.detail != "" and abs(underway_ns) <= _UNDERWAY_NS


def _begun_ns(member: Member, work: Work) -> int:
    return member.header.epoch_ns + work.start_ns - member.header.mono_ns


def _apart(findings: list[Finding]) -> list[Finding]:
    """Mark ranks of one launch that are not where most of their role wait in one stage.

    A rank of another role, as that of the model of the reference, is at something else by right.
    """
    at: dict[str, Counter[str | None]] = {}
    for one in filter(_is_rank, findings):
        at.setdefault(one.member.role, Counter())[_place(one)] += 1
    waits = dict[str, str | None]()
    for role, places in at.items():
        [(place, count)] = places.most_common(1)
        waits[role] = place if count > places.total() / 2 else None
    return [
        replace(one, verdict="apart")
        if _is_rank(one)
        and waits[one.member.role] not in (None, _place(one))
        and one.verdict in ("open", "idle", "unknown")
        else one
        for one in findings
    ]


def _is_rank(one: Finding) -> bool:
    return one.member.rank is not None and _runs(one.member)


def _place(one: Finding) -> str | None:
    return None if one.work is None else one.work.name


def _rank(one: Finding) -> tuple[int, int, float]:
    name = "" if one.work is None else one.work.name
    fine = _FINER.index(name) if name in _FINER else len(_FINER)
    fine += 2 + _OUTER.index(name) if name in _OUTER else 0
    # Who makes a call does so in a stage of its own; who does it has nothing around it.
    fine -= name == names.RPC.name and not one.inside
    return _ORDER.index(one.verdict), fine, -(one.times or one.age_s or 0.0)
