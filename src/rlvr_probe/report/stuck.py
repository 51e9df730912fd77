"""What ``rlvr-probe stuck`` says: the suspect, its stack, who is at what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_probe.analysis.baselines import LEAST
from rlvr_probe.analysis.finding import WRONG, Finding, Standing
from rlvr_probe.report.document import Block, Column, Line, clean, duration, grid, seconds
from rlvr_probe.report.standing import measured, say_away, say_standing, what_is, who_is

__all__ = ["Frame", "Stacks", "lay_out_stuck", "stuck_document"]

Frame = tuple[str, str, int]
"""Function, file without its folders, line."""
Stacks = Mapping[tuple[int, int | None], Sequence[Frame]]
"""By :attr:`Finding.thread`, the innermost frame first."""

_SHOWN = 3


def stuck_document(
    run: str, findings: Sequence[Finding], standing: Standing, stacks: Stacks
) -> dict[str, Any]:
    """The same as JSON.

    Args:
        run: Its id.
        findings: The most suspicious first.
        standing: How the run as a whole stands.
        stacks: Of threads of this machine.
    """
    return {
        "run": run,
        "stuck": standing.outcome == "stuck",
        "outcome": standing.outcome,
        "processes": dict(standing.states),
        "returned": standing.returned if standing.trained else None,
        "seen_s": standing.seen_s,
        "findings": [_entry(one, stacks) for one in findings],
    }


def _entry(one: Finding, stacks: Stacks) -> dict[str, Any]:
    header, work = one.member.header, one.work
    stack = stacks.get(one.thread) if one.member.state == "running" else None
    return {
        "verdict": one.verdict,
        "process": header.process,
        "host": header.host,
        "pid": header.pid,
        "rank": one.member.rank,
        "role": one.member.role or None,
        "state": one.member.state,
        "silent_s": one.silent_s,
        "span": None if work is None else work.name,
        "detail": None if work is None else work.detail or None,
        "step": _step(one),
        "turns": None if work is None else work.turns,
        "open_s": one.age_s,
        "at": None if one.at is None else one.at.name,
        "inside": [span.name for span in one.inside],
        "compared_with": one.before,
        "p50_s": one.p50_s,
        "p99_s": one.p99_s,
        "longest_s": one.longest_s,
        "limit_s": None if one.limit is None else one.limit.seconds,
        "rule": None if one.limit is None else one.limit.rule,
        "waiting": one.waiting,
        "discarded": one.member.sifting.discarded,
        "rounds": one.member.sifting.rounds,
        "stack": None
        if stack is None
        else [{"function": name, "file": file, "line": line} for name, file, line in stack],
    }


def lay_out_stuck(
    run: str,
    findings: Sequence[Finding],
    standing: Standing,
    stacks: Stacks,
    hint: str = "",
) -> list[Block]:
    """The report, for a terminal.

    Args:
        run: Its id.
        findings: The most suspicious first.
        standing: How the run as a whole stands.
        stacks: Of threads of this machine.
        hint: Why there are no stacks, and what helps.
    """
    states = (f"{count} {state}" for state, count in standing.states.items())
    blocks: list[Block] = [Line(" · ".join((clean(run, 64), *states)), "title")]
    wrong = [one for one in findings if one.verdict in WRONG]
    suspects = wrong or [one for one in findings if one.verdict == "apart"]
    blocks += say_standing(findings, standing)
    for one in suspects[:_SHOWN]:
        blocks.append(Line(_sentence(one), "alarm" if wrong else "plain"))
        blocks += _stack(one, stacks)
    if len(suspects) > _SHOWN:
        blocks.append(Line(f"… and {len(suspects) - _SHOWN} more, below", "quiet"))
    blocks += say_away(standing)
    if hint and suspects:
        blocks.append(Line(hint, "quiet"))
    return [*blocks, *_table(findings)]


def _sentence(one: Finding) -> str:
    who = who_is(one)
    if one.verdict == "silent" and one.member.state == "running":
        text = f"{who} gives no sign of life for {duration(one.silent_s or 0.0)}: no thread of it"
        text += " can run Python, or it stands still"
    elif one.verdict == "silent":
        text = f"{who} gave its last sign of life {duration(one.silent_s or 0.0)} before others of"
        text += " its job, by wall clocks"
    elif one.verdict == "died":
        text = f"{who} died, and others of its job go on"
    elif one.verdict == "gone":
        at = "" if one.age_s is None else f" for at least {duration(one.age_s)}"
        return f"{who} was at {what_is(one)}{at}"
    elif one.verdict == "missing":
        text = f"{who} has not come to where {one.waiting} of its role wait unusually long"
    elif one.verdict == "apart":
        text = f"{who} is not where most ranks wait"
    elif one.verdict == "starved":
        text = f"{who} generates and trains on nothing: {_sifted(one)}"
    elif one.waiting:
        text = f"{who} is stuck, and {one.waiting} of its role wait for it"
    elif one.limit is not None and one.limit.rule != "past":
        text = f"{who} may be stuck"
    else:
        text = f"{who} is stuck"
    if one.work is not None and one.age_s is not None:
        at_least = "" if one.member.state == "running" else "at least "
        text += f": {what_is(one)} open for {at_least}{duration(one.age_s)}"
        text += measured(one)
    elif one.verdict in ("apart", "missing", "died"):
        text += ": it has nothing open"
    return text


def _sifted(one: Finding) -> str:
    sifting = one.member.sifting
    if sifting.discarded:
        where = "rollout" if sifting.queued else "step"
        return (
            f"in this {where} its filter threw away {sifting.discarded:,} groups, and passed none"
            " that is told"
        )
    before = f", at most {sifting.most_rounds} times in one before" if sifting.most_rounds else ""
    return (
        f"it generated {sifting.rounds} times in this step{before}: as when no group passes a"
        " filter"
    )


def _stack(one: Finding, stacks: Stacks) -> list[Block]:
    found = stacks.get(one.thread, ()) if one.member.state == "running" else ()
    return [
        Line(f"    {clean(name, 40)}  {clean(file, 40)}:{line}", "quiet")
        for name, file, line in found[:12]
    ]


def _table(findings: Sequence[Finding]) -> list[Block]:
    hosts = {one.member.header.host for one in findings}
    rows = [
        [
            "" if one.verdict == "open" else one.verdict,
            clean(one.member.header.host, 20) if len(hosts) > 1 else "",
            clean(one.member.role, 20),
            "" if one.member.rank is None else str(one.member.rank),
            str(one.member.header.pid),
            clean(what_is(one), 32),
            "" if (step := _step(one)) is None else str(step),
            seconds(one.age_s),
            "" if one.limit is None else seconds(one.limit.seconds),
            seconds(one.p99_s) if one.before >= LEAST else "",
            "" if one.times is None or one.before < LEAST else f"{one.times:,.1f}x",
            " < ".join(span.name for span in one.inside if span.name != "step"),
        ]
        for one in findings
    ]
    columns = (
        Column("", number=False),
        Column("host", number=False),
        Column("role", number=False),
        Column("rank"),
        Column("pid"),
        Column("at", number=False),
        Column("step"),
        Column("open for, s"),
        Column("told past, s"),
        Column("P99, s"),
        Column("times P99"),
        Column("inside", number=False),
    )
    if not rows:
        return []
    return [grid("What each process is at", columns, rows, head=16, tail=2, what="processes")]


def _step(one: Finding) -> int | None:
    spans = (() if one.work is None else (one.work,)) + one.inside
    return next((span.step for span in spans if span.step is not None), None)
