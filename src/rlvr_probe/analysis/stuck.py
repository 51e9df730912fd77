"""What a run is stuck on: what is open, against how long such things took before, and who waits.

A span is *overdue* once it is open for longer than :mod:`~rlvr_probe.analysis.limits` allows,
and so is what a trainer does between two steps. Where enough of its kind ended, what is around it
is judged as well, since a step may not end though all in it does; where they are few, what ends
inside it shows that it goes on. A call that is overdue where it was made is so where it is done.

Calls and ranks are matched within a launch. Who died, is silent or has not come where others are
overdue comes before those. Of overdue spans the innermost ones of a process count, and finer ones
come first: a tool call holds up its turn's trajectory, a trajectory its rollout, a rollout the step
of every rank, and a rank that does a call the controller that made it. A launch that is over and
trains again is past, and so is one that was over before it trained and was launched again: nothing
is said of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, get_args

from rlvr_probe.analysis.finding import WRONG, Finding, Verdict
from rlvr_probe.analysis.launches import Launch, is_starving, launches, step_of
from rlvr_probe.analysis.limits import Fallback, Limit, Times, Usual, fineness, limit_of
from rlvr_probe.analysis.peers import apart, called, missing
from rlvr_probe.model import names
from rlvr_probe.recording.between_steps import AFTER, BEFORE, UNSEEN
from rlvr_probe.recording.follow.member import Member, Work

__all__ = ["examine", "is_stuck"]

_SILENT_S: Final = 15.0
"""A flush thread writes ten times per second; one that a busy machine holds up, less often."""
_ORDER: Final[tuple[Verdict, ...]] = get_args(Verdict)
_ASIDE: Final = frozenset((names.EVAL.name, names.CHECKPOINT.name))
"""What comes every so many steps: the step that holds it is not judged by its length."""
_FINE: Final = frozenset(
    name.name
    for name in (
        names.TOOL_CALL, names.REWARD_FN, names.VERIFY, names.TURN, names.TRAJECTORY,
        names.OPTIMIZER_STEP, names.USER,
    )
)  # fmt: skip
"""What is judged where it is the innermost alone, since it takes as long as it takes; and what else
its process does need not be inside of it."""
_GENERATES: Final = frozenset((names.ROLLOUT.name, names.REWARD.name, names.EVAL.name, UNSEEN))
"""What goes on as long as trajectories do, whichever process they are in."""
_SIFTED: Final = frozenset((names.ROLLOUT.name, names.EXPERIENCE.name, names.STEP.name))
_BEGINNING: Final = frozenset((names.RPC.name, names.USER.name))
"""What is recorded before training starts: models are loaded by calls to their processes."""
_PASSING: Final = ("", "task")
"""Roles of processes that others start and end as they need them."""


@dataclass(frozen=True, slots=True)
class _Look:
    usual: Usual
    boot: str
    now_ns: int
    fallback: Fallback
    trained: bool


def examine(
    members: Sequence[Member], boot: str, now_ns: int, fallback: Fallback | None = None
) -> list[Finding]:
    """What each process does, the most suspicious first.

    Args:
        members: Processes of one run.
        boot: Boot id of this machine.
        now_ns: CLOCK_MONOTONIC of this machine.
        fallback: The limit where there is little to compare with.
    """
    trained = any(member.trained for member in members)
    look = _Look(Usual(members), boot, now_ns, fallback or Fallback(), trained)
    found = list[Finding]()
    for launch in launches(members):
        own = [
            finding
            for member in launch.members
            if member.state in ("running", "died", "unknown")
            for finding in _of(member, launch, look)
        ]
        found += missing(apart(called(own)))
    return sorted(found, key=_rank)


def is_stuck(findings: Iterable[Finding]) -> bool:
    """Whether anything is known to be wrong."""
    return any(finding.verdict in WRONG for finding in findings)


@dataclass(frozen=True, slots=True)
class _Open(Finding):
    """What is found of an open span by itself."""

    work: Work


def _of(member: Member, launch: Launch, look: _Look) -> list[Finding]:
    if launch.outlived(member):
        return []
    here = member.state == "running" and member.header.boot == look.boot and member.beats
    silent_s = max(0, look.now_ns - member.heartbeat_ns) / 1e9 if here else None
    wrong: Verdict | None = None
    if member.state == "died" and launch.alive:
        wrong = "died"
    elif silent_s is not None and silent_s > _SILENT_S:
        wrong = "silent"
    elif member.state == "unknown" and not launch.returned and _is_needed(member):
        lag_s = (launch.seen_ns - member.wall_ns(member.heartbeat_ns)) / 1e9
        if lag_s > look.fallback.after_s:
            wrong, silent_s = "silent", lag_s
    gone = member.state == "died" and (launch.trained or not look.trained)
    # What a script does after its training is its own affair, for a while.
    opened = [
        span
        for span in _opened(member, launch, look)
        if span.work.name != AFTER or span.verdict == "overdue"
    ]
    if wrong is None and (starved := _starved(member, launch, look, opened)) is not None:
        wrong, opened = "starved", [starved]
    if not opened:
        if member.state == "died" and not _is_needed(member):
            return []  # as helpers end; how is not for here
        verdict = wrong or ("gone" if gone else "idle")
        return [Finding(member, None, (), None, silent_s, 0, None, None, None, verdict)]
    return [
        replace(
            span,
            silent_s=silent_s,
            verdict=wrong or ("gone" if gone and span.verdict != "overdue" else span.verdict),
        )
        for span in opened
    ]


def _starved(member: Member, launch: Launch, look: _Look, opened: Sequence[_Open]) -> _Open | None:
    """The step of a process for which its filter passes nothing, if it is past its limit."""
    step = step_of(member)
    if step is None or not is_starving(member, step, launch):
        return None
    if any(span.verdict == "overdue" and span.work.name not in _SIFTED for span in opened):
        return None  # something in it does not go on
    past = look.usual.of(member, step)
    limit = limit_of(step.name, past, look.fallback)
    age_s = max(0, _until_ns(member, look) - step.start_ns) / 1e9
    if age_s - step.aside_ns / 1e9 <= limit.seconds:
        return None
    span = next(span for span in opened if step in (span.work, *span.inside))
    path = tuple(work for work in (span.at, span.work, *span.inside) if work is not None)
    return _open(member, path, path.index(step), age_s, past, limit, "overdue")


def _open(
    member: Member, path: tuple[Work, ...], place: int, age_s: float, past: Times, limit: Limit,
    verdict: Verdict, moved_s: float | None = None,
) -> _Open:  # fmt: skip
    """What is found of the span at ``place`` of ``path``, which has the innermost one first."""
    return _Open(
        member, path[place], path[place + 1 :], age_s, None, past.count, past.p50_s, past.p99_s,
        past.longest_s, verdict, limit, moved_s, at=path[0] if place else None,
    )  # fmt: skip


def _is_needed(member: Member) -> bool:
    """Whether others of its job count on it, as far as is recorded."""
    if member.trained or (names.RPC.name, "") in member.past:
        return True
    return bool(member.past) and member.role not in _PASSING


def _opened(member: Member, launch: Launch, look: _Look) -> Iterator[_Open]:
    """The innermost spans of a process: of those that are overdue, and of all others."""
    by_id = {work.id: work for work in member.work if not _is_idle(work, member, launch)}
    outer = {work.parent for work in by_id.values()}
    leaves = [work for work in by_id.values() if work.id not in outer]
    paths = {leaf.id: (leaf, *_around(leaf, by_id)) for leaf in leaves}
    found = list[_Open]()
    for path in paths.values():
        judged = (_judged(path, at, member, launch, look) for at in range(len(path)))
        known = [span for span in judged if span is not None]
        found.append(next((span for span in known if span.verdict == "overdue"), known[0]))
    holding = {work.id for span in found if span.verdict == "overdue" for work in span.inside}
    seen = set[int]()
    for span in found:
        if span.at is not None and span.work.id in holding:
            # Something else in it is overdue, and this is not.
            again = _judged(paths[span.at.id], 0, member, launch, look)
            if again is not None:
                yield again
        elif span.work.id not in seen:
            seen.add(span.work.id)
            yield span


def _is_idle(work: Work, member: Member, launch: Launch) -> bool:
    """Whether a process that is outside of any training has nothing to do, as far as is known.

    Where no process trains yet, and nothing but calls was recorded, all of its launch starts up. A
    training that returned ends its processes, unless that of others goes on.
    """
    if work.name == AFTER:
        return member.state != "running" or _goes_on(launch)
    if work.name != BEFORE or member.trained:
        return False
    opened = any(other.name != BEFORE for process in launch.members for other in process.work)
    served = any(name not in _BEGINNING for process in launch.members for name, _ in process.past)
    return launch.trained or opened or served


def _goes_on(launch: Launch) -> bool:
    """Whether processes of a launch stay by right: one trains, or somebody types what is next."""
    return any(
        process.state == "running"
        and (process.interactive or (process.trained and not process.returned))
        for process in launch.members
    )


def _judged(
    path: tuple[Work, ...], place: int, member: Member, launch: Launch, look: _Look
) -> _Open | None:
    """How the span at ``place`` of ``path`` compares; None where it is not to be judged."""
    work = path[place]
    if place and (work.name in _FINE or any(outer.name in _ASIDE for outer in path[:place])):
        return None
    past = Times() if work.name == BEFORE else look.usual.of(member, work)
    limit = limit_of(work.name, past, look.fallback)
    if place and limit.rule != "past":
        return None
    until_ns = _until_ns(member, look)
    since_ns = work.start_ns + work.aside_ns
    if work.name == AFTER:  # others may evaluate or save for it
        since_ns = max(since_ns, member.mono_ns(launch.moved_ns))
    age_s, moved_s = max(0, until_ns - work.start_ns) / 1e9, None
    still_s = (until_ns - since_ns) / 1e9
    if limit.rule != "past" and (moved_ns := _last_moved_ns(path, member, launch)) > since_ns:
        moved_s = max(0, until_ns - moved_ns) / 1e9
        longest = Limit(limit.seconds * look.fallback.times, limit.rule)
        limit, still_s = (longest, still_s) if still_s > longest.seconds else (limit, moved_s)
    verdict: Verdict = "open" if limit.rule == "past" else "unknown"
    verdict = "overdue" if still_s > limit.seconds else verdict
    return _open(member, path, place, age_s, past, limit, verdict, moved_s)


def _until_ns(member: Member, look: _Look) -> int:
    return look.now_ns if member.state == "running" else member.heartbeat_ns


def _last_moved_ns(path: tuple[Work, ...], member: Member, launch: Launch) -> int:
    """When something last ended in the innermost span of ``path``, CLOCK_MONOTONIC."""
    if path[0].name in _FINE:
        return 0
    if path[0].name == BEFORE and not member.trained:
        return member.mono_ns(launch.moved_ns)
    if any(work.name in _GENERATES for work in path):
        return max(member.last_ns, member.mono_ns(launch.active_ns))
    return member.last_ns


def _around(work: Work, by_id: dict[int, Work]) -> Iterator[Work]:
    seen = set[int]()
    while work.parent in by_id and work.parent not in seen:
        seen.add(work.parent)
        work = by_id[work.parent]
        yield work


def _rank(finding: Finding) -> tuple[int, bool, int, float]:
    name = "" if finding.work is None else finding.work.name
    fine = fineness(name, outermost=not finding.inside)
    return (
        _ORDER.index(finding.verdict),
        not finding.waiting,
        fine,
        -(finding.times or finding.age_s or 0.0),
    )
