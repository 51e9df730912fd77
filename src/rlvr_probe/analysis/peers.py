"""Compares ranks of a launch: who serves an overdue call, who is elsewhere, who is missing."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from rlvr_probe.analysis.finding import Finding
from rlvr_probe.model import names
from rlvr_probe.recording.between_steps import BETWEEN
from rlvr_probe.recording.follow.member import Member

__all__ = ["apart", "called", "missing"]

_UNDERWAY_NS: Final = 1_000_000_000
"""Longest way of a call from its caller to its callee: 12 ms were measured; a busy machine takes
longer, and wall clocks of two machines differ."""
_STAGES: Final = frozenset((*names.STAGES, names.RPC.name, BETWEEN))
_OF_ONE: Final = frozenset((names.CHECKPOINT.name, names.EVAL.name))
"""What one rank may do alone while the others are elsewhere."""


def called(findings: list[Finding]) -> list[Finding]:
    """Mark the callee of an overdue call, in one launch, as overdue too.

    The call of its caller starts earlier by the time it was on its way: for so long only the
    caller, which waits, would be named.
    """
    made = [finding for finding in findings if finding.verdict == "overdue" and finding.inside]
    return [
        replace(finding, verdict="overdue")
        if finding.verdict in ("open", "unknown", "gone")
        and not finding.inside
        and any(_is_same_call(finding, other) for other in made)
        else finding
        for finding in findings
    ]


def _is_same_call(finding: Finding, other: Finding) -> bool:
    """Whether both are in the same call: of one method, and started at one time by wall clocks."""
    done, made = finding.work, other.work
    if done is None or made is None or not done.name == made.name == names.RPC.name:
        return False
    underway_ns = finding.member.wall_ns(done.start_ns) - other.member.wall_ns(made.start_ns)
    return done.detail == made.detail != "" and abs(underway_ns) <= _UNDERWAY_NS


def apart(findings: list[Finding]) -> list[Finding]:
    """Mark ranks of one launch that are outside the stage in which most of their role wait.

    Ranks of another role, such as those of the reference model, have other stages.
    """
    at: dict[str, Counter[str | None]] = {}
    for finding in filter(_is_rank, findings):
        at.setdefault(finding.member.role, Counter())[_place(finding)] += 1
    waits = dict[str, str | None]()
    for role, places in at.items():
        [(place, count)] = places.most_common(1)
        waits[role] = place if count > places.total() / 2 else None
    return [
        replace(finding, verdict="apart")
        if _is_rank(finding)
        and waits[finding.member.role] not in (None, _place(finding))
        and finding.verdict in ("open", "idle", "unknown")
        else finding
        for finding in findings
    ]


def _is_rank(finding: Finding) -> bool:
    return finding.member.rank is not None and finding.member.state == "running"


def _place(finding: Finding) -> str | None:
    return None if finding.work is None else finding.work.name


@dataclass(frozen=True, slots=True)
class _Stage:
    """A stage that ranks of a role are overdue in.

    Attributes:
        role: The role.
        names: Names of that stage and of the stages inside it.
        name: Name of the stage.
        in_step: Whether it is in a step.
        common: Whether most ranks of the role are in the same span.
    """

    role: str
    names: frozenset[str]
    name: str
    in_step: bool
    common: bool


def missing(findings: list[Finding]) -> list[Finding]:
    """Mark ranks of one launch that overdue ranks wait for, with how many wait.

    Such a rank has done nothing since another rank of its role started the stage that is overdue
    there, and is in no stage of that name. A stage that one rank may do alone waits for no other.
    """
    stages = _overdue_stages([finding for finding in findings if finding.member.rank is not None])
    found = list[Finding]()
    for finding in findings:
        ahead = 0
        if finding.member.rank is not None and finding.verdict not in ("died", "silent"):
            moved_ns = _moved_ns(finding.member) + _UNDERWAY_NS
            ahead = sum(
                len(starts) - bisect_right(starts, moved_ns)
                for stage, starts in stages.items()
                if stage.role == finding.member.role and _is_missed(finding, stage)
            )
        verdict = finding.verdict if finding.verdict == "overdue" or not ahead else "missing"
        found.append(replace(finding, verdict=verdict, waiting=ahead))
    return found


def _overdue_stages(ranks: Sequence[Finding]) -> dict[_Stage, list[int]]:
    """When ranks started the stages that are overdue there, sorted, by wall clocks."""
    calls = Counter((finding.member.role, _call(finding)) for finding in ranks)
    total = Counter(finding.member.role for finding in ranks)
    found = dict[_Stage, dict[str, int]]()
    for finding in ranks:
        path = [work for work in (*reversed(finding.inside), finding.work) if work is not None]
        stage = next((work for work in path if work.name in _STAGES), None)
        if finding.verdict == "overdue" and stage is not None:
            role = finding.member.role
            common = calls[role, _call(finding)] > total[role] / 2
            in_step = any(work.name == names.STEP.name for work in path)
            key = _Stage(role, frozenset(_names(finding)), stage.name, in_step, common)
            starts = found.setdefault(key, {})
            starts[finding.member.header.process] = finding.member.wall_ns(stage.start_ns)
    return {stage: sorted(starts.values()) for stage, starts in found.items()}


def _is_missed(finding: Finding, stage: _Stage) -> bool:
    """Whether this stage waits for a rank that is elsewhere."""
    if not _names(finding).isdisjoint(stage.names):
        return False
    if stage.name == BETWEEN:
        return any(work.name == names.STEP.name for work in finding.inside)
    return stage.common or (stage.in_step and stage.name not in _OF_ONE)


def _call(finding: Finding) -> tuple[str, str] | None:
    return None if finding.work is None else (finding.work.name, finding.work.detail)


def _names(finding: Finding) -> set[str]:
    works = finding.inside if finding.work is None else (finding.work, *finding.inside)
    return {work.name for work in works} & _STAGES


def _moved_ns(member: Member) -> int:
    """When a rank last started or ended something, by the wall clock of its machine."""
    starts = (work.start_ns for work in member.work)
    return member.wall_ns(max(member.last_ns, member.header.mono_ns, *starts))
