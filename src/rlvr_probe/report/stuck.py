"""What ``rlvr-probe stuck`` says: the suspect, its stack, who is at what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_probe.analysis.stuck import WRONG, Finding, is_stuck
from rlvr_probe.analysis.usual import LEAST
from rlvr_probe.report.document import Block, Column, Line, clean, duration, grid, seconds

__all__ = ["Frame", "Stacks", "lay_out_stuck", "stuck_document"]

Frame = tuple[str, str, int]
"""Function, file without its folders, line."""
Stacks = Mapping[tuple[int, int | None], Sequence[Frame]]
"""By :attr:`Finding.thread`, the innermost frame first."""

_SHOWN = 3


def stuck_document(run: str, findings: Sequence[Finding], stacks: Stacks) -> dict[str, Any]:
    """The same as JSON.

    Args:
        run: Its id.
        findings: The most suspicious first.
        stacks: Of threads of this machine.
    """
    return {
        "run": run,
        "stuck": is_stuck(findings),
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
        "inside": [span.name for span in one.inside],
        "compared_with": one.before,
        "p50_s": one.p50_s,
        "p99_s": one.p99_s,
        "longest_s": one.longest_s,
        "stack": None
        if stack is None
        else [{"function": name, "file": file, "line": line} for name, file, line in stack],
    }


def lay_out_stuck(
    run: str,
    findings: Sequence[Finding],
    stacks: Stacks,
    hint: str = "",
) -> list[Block]:
    """The report, for a terminal.

    Args:
        run: Its id.
        findings: The most suspicious first.
        stacks: Of threads of this machine.
        hint: Why there are no stacks, and what helps.
    """
    states = Counter({one.member.header.process: one.member.state for one in findings}.values())
    title = " · ".join((clean(run, 64), *(f"{count} {state}" for state, count in states.items())))
    blocks: list[Block] = [Line(title, "title")]
    wrong = [one for one in findings if one.verdict in WRONG]
    suspects = wrong or [one for one in findings if one.verdict == "apart"]
    if not findings:
        blocks.append(Line("nothing is open, and no process of it runs here"))
    elif not suspects:
        unknown = sum(one.verdict == "unknown" for one in findings)
        blocks.append(Line("nothing is open for unusually long"))
        if unknown:
            blocks.append(
                Line(f"of {unknown} that are open fewer than {LEAST} ended before: nothing to"
                     " compare with", "quiet")
            )  # fmt: skip
    for one in suspects[:_SHOWN]:
        blocks.append(Line(_sentence(one), "alarm" if wrong else "plain"))
        blocks += _stack(one, stacks)
    if len(suspects) > _SHOWN:
        blocks.append(Line(f"… and {len(suspects) - _SHOWN} more, below", "quiet"))
    if hint and suspects:
        blocks.append(Line(hint, "quiet"))
    return [*blocks, *_table(findings)]


def _sentence(one: Finding) -> str:
    who = _who(one)
    if one.verdict == "silent":
        text = f"{who} gives no sign of life for {duration(one.silent_s or 0.0)}: no thread of it"
        text += " can run Python, or it stands still"
    elif one.verdict == "died":
        text = f"{who} died, and others of its job go on"
    elif one.verdict == "apart":
        text = f"{who} is not where most ranks wait"
    else:
        text = f"{who} is stuck"
    if one.work is not None and one.age_s is not None:
        at_least = "" if one.member.state == "running" else "at least "
        text += f": {_what(one)} open for {at_least}{duration(one.age_s)}"
        if one.before >= LEAST and one.p99_s is not None:
            text += f"; 99 of 100 took {duration(one.p99_s)} or less, of {one.before:,}"
    elif one.verdict == "apart":
        text += ": it has nothing open"
    return text


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
            clean(_what(one), 32),
            "" if (step := _step(one)) is None else str(step),
            seconds(one.age_s),
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
        Column("P99, s"),
        Column("times P99"),
        Column("inside", number=False),
    )
    if not rows:
        return []
    return [grid("What each process is at", columns, rows, head=16, tail=2, what="processes")]


def _who(one: Finding) -> str:
    header, rank = one.member.header, one.member.rank
    name = f"rank {rank}" if rank is not None else clean(one.member.role, 24) or "a process"
    return f"{name} (pid {header.pid} on {clean(header.host, 24)})"


def _what(one: Finding) -> str:
    if one.work is None:
        return "nothing"
    detail = f" {clean(one.work.detail, 24)}" if one.work.detail else ""
    turns = f" after {one.work.turns} turns" if one.work.turns else ""
    return f"{one.work.name}{detail}{turns}"


def _step(one: Finding) -> int | None:
    spans = (() if one.work is None else (one.work,)) + one.inside
    return next((span.step for span in spans if span.step is not None), None)
