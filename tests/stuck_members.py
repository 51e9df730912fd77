"""Processes of a run that is looked at while it goes on, without a recording."""

from __future__ import annotations

from rlvr_probe.analysis.finding import standing_of
from rlvr_probe.analysis.stuck import examine
from rlvr_probe.model.trace import ProcessState
from rlvr_probe.recording.follow.member import Member, Past, Work
from rlvr_probe.recording.header import Header
from rlvr_probe.report.stuck import lay_out_stuck
from tests.journals import BOOT, SECOND

__all__ = ["NOW", "member", "said", "times", "verdicts", "work"]

NOW = 1_000 * SECOND


def times(*seconds: float) -> Past:
    past = Past()
    for one in seconds:
        past.add(round(one * SECOND))
    return past


def member(
    rank: int | None = 0,
    *work: Work,
    state: ProcessState = "running",
    beat_s: float = 1_000.0,
    role: str = "",
    job: str = "job",
    begun_s: float = 0.0,
    trained: bool = False,
    last_s: float = 0.0,
    **past: float,
) -> Member:
    """A process that did a hundred spans of each name in so many seconds."""
    header = Header(
        f"{rank or 0:016x}", 0, "run", job, None, "host", BOOT, 100 + (rank or 0), 1, 1,
        round(begun_s * SECOND), round(begun_s * SECOND), "", 1, "", rank, None, None, {},
    )  # fmt: skip
    found = {
        (name, detail): times(*[seconds] * 100)
        for name, seconds in past.items()
        for detail in ("", *(span.detail for span in work if span.name == name))
    }
    return Member(
        header,
        state,
        work,
        found,
        round(last_s * SECOND),
        round(beat_s * SECOND),
        role,
        rank,
        trained,
    )


def work(number: int, name: str, since_s: float, parent: int = 0, detail: str = "") -> Work:
    return Work(number, parent, name, detail, NOW - round(since_s * SECOND))


def verdicts(*members: Member) -> list[tuple[int | None, str, str | None]]:
    return [
        (one.member.rank, one.verdict, None if one.work is None else one.work.name)
        for one in examine(members, BOOT, NOW)
    ]


def said(*members: Member, boot: str = BOOT) -> str:
    findings = examine(members, boot, NOW)
    blocks = lay_out_stuck("run", findings, standing_of(members, findings, NOW), {}, "")
    return "\n".join(getattr(block, "text", "") for block in blocks)
