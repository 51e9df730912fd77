"""What a run is stuck on: what is open, against how long such things took before, and who waits.

A span is *overdue* if it has been open for three times the 99th percentile of those of its kind
that ended in its run, longer than any of them, and for ten seconds at least; with fewer than twenty
to compare with, nothing is said. Of overdue spans the innermost ones of a process count, and finer
ones come first: a tool call holds up its turn's trajectory, a trajectory its rollout, a rollout the
step of every rank, and a rank that does a call the controller that made it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from rlvr_probe.model import names
from rlvr_probe.trace.pulse import Member, Past, Work

__all__ = ["LEAST", "Finding", "Verdict", "examine", "is_stuck"]

LEAST: Final = 20
"""Spans that ended, below which there is nothing to compare with."""
_TIMES: Final = 3
_LEAST_S: Final = 10.0
_SILENT_S: Final = 15.0
"""A flush thread writes ten times per second; one that a busy machine holds up, less often."""

Verdict = Literal["died", "silent", "overdue", "apart", "open", "idle", "unknown"]
"""``died``: while others of its job go on. ``silent``: it runs, and no thread of the probe in it
does. ``overdue``: see above. ``apart``: it is not where most ranks wait. ``open``: nothing is wrong
with it. ``idle``: it has nothing open. ``unknown``: too few to compare with."""

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
    alive = any(one.state == "running" for one in members)
    pasts = _of_all(members)
    found = [
        finding
        for one in members
        if one.state in ("running", "died", "unknown")
        for finding in _of(one, pasts, boot, now_ns, alive)
    ]
    return sorted(_apart(found), key=_rank)


def is_stuck(findings: Iterable[Finding]) -> bool:
    """Whether anything is wrong that can be told."""
    return any(one.verdict in ("died", "silent", "overdue") for one in findings)


def _of_all(members: Sequence[Member]) -> dict[tuple[str, str], Past]:
    """How long spans of a kind took in any process."""
    found = dict[tuple[str, str], Past]()
    for one in members:
        for key, past in one.past.items():
            whole = found.setdefault(key, Past())
            whole.count += past.count
            whole.recent_ns.extend(past.recent_ns)
    return found


def _of(
    member: Member, pasts: dict[tuple[str, str], Past], boot: str, now_ns: int, alive: bool
) -> list[Finding]:
    runs, here = member.state == "running", member.header.boot == boot
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
        past = None if work is None else _past(member, pasts, work)
        sample = sorted(past.recent_ns) if past is not None else []
        age_s = None if work is None else max(0, until_ns - work.start_ns) / 1e9
        p50_s, p99_s = _quantile(sample, 0.5), _quantile(sample, 0.99)
        longest_s = sample[-1] / 1e9 if sample else None
        verdict: Verdict = "open" if work is not None else "idle"
        if member.state == "died" and alive:
            verdict = "died"
        elif runs and silent_s is not None and silent_s > _SILENT_S:
            verdict = "silent"
        if age_s is not None and verdict == "open":
            if past is None or past.count < LEAST or p99_s is None or longest_s is None:
                verdict = "unknown"
            elif age_s > max(_TIMES * p99_s, longest_s, _LEAST_S):
                verdict = "overdue"
        found.append(
            Finding(
                member, work, tuple(_around(work, by_id)), age_s, silent_s if runs else None,
                0 if past is None else past.count, p50_s, p99_s, longest_s, verdict,
            )
        )  # fmt: skip
    return found


def _past(member: Member, pasts: dict[tuple[str, str], Past], work: Work) -> Past | None:
    """Of its kind in its process, if that has enough of them, else in all."""
    for key in dict.fromkeys(((work.name, work.detail), (work.name, ""))):
        for where in (member.past, pasts):
            past = where.get(key)
            if past is not None and past.count >= LEAST:
                return past
    return pasts.get((work.name, work.detail)) or pasts.get((work.name, ""))


def _around(work: Work | None, by_id: dict[int, Work]) -> Iterable[Work]:
    seen = set[int]()
    while work is not None and work.parent in by_id and work.parent not in seen:
        seen.add(work.parent)
        work = by_id[work.parent]
        yield work


def _apart(findings: list[Finding]) -> list[Finding]:
    """Mark ranks that are not where most ranks are, where these wait for them in one stage."""
    ranks = [
        one for one in findings if one.member.rank is not None and one.member.state == "running"
    ]
    where = Counter(None if one.work is None else one.work.name for one in ranks)
    place, count = where.most_common(1)[0] if where else (None, 0)
    if place is None or count <= len(ranks) / 2 or count == len(ranks):
        return findings
    others = [one for one in ranks if one.work is None or one.work.name != place]
    return [
        replace(one, verdict="apart")
        if any(one is other for other in others) and one.verdict in ("open", "idle", "unknown")
        else one
        for one in findings
    ]


def _rank(one: Finding) -> tuple[int, int, float]:
    name = "" if one.work is None else one.work.name
    fine = _FINER.index(name) if name in _FINER else len(_FINER)
    fine += 2 + _OUTER.index(name) if name in _OUTER else 0
    # Who makes a call does so in a stage of its own; who does it has nothing around it.
    fine -= name == names.RPC.name and not one.inside
    return _ORDER.index(one.verdict), fine, -(one.times or one.age_s or 0.0)


def _quantile(sample: Sequence[int], share: float) -> float | None:
    """With linear interpolation, s."""
    if not sample:
        return None
    at = share * (len(sample) - 1)
    low = int(at)
    high = min(low + 1, len(sample) - 1)
    return (sample[low] + (at - low) * (sample[high] - sample[low])) / 1e9
