"""What ``rlvr-probe stuck`` says: the suspect, its stack, who is at what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlvr_probe.analysis.finding import WRONG, Finding
from rlvr_probe.analysis.standing import Standing
from rlvr_probe.analysis.usual import LEAST
from rlvr_probe.report.document import Block, Line, clean, duration, seconds, table

__all__ = ["Frame", "Stacks", "lay_out_stuck", "stuck_document"]

Frame = tuple[str, str, int]
"""Function, file without its folders, line."""
Stacks = Mapping[tuple[int, int | None], Sequence[Frame]]
"""By :attr:`Finding.thread`, the innermost frame first."""

_SHOWN = 3
"""Suspects in the answer."""
_NAMED = 2
"""Findings with an unknown limit in it."""
_DIFFER_S = 1.0
"""By how much clocks of hosts may differ before it is said."""


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
    blocks += _say_standing(findings, standing)
    for one in suspects[:_SHOWN]:
        blocks.append(Line(_sentence(one), "alarm" if wrong else "plain"))
        blocks += _stack(one, stacks)
    if len(suspects) > _SHOWN:
        blocks.append(Line(f"… and {len(suspects) - _SHOWN} more, below", "quiet"))
    blocks += _say_away(standing)
    if hint and suspects:
        blocks.append(Line(hint, "quiet"))
    return [*blocks, *_table(findings)]


def _say_standing(findings: Sequence[Finding], standing: Standing) -> Iterator[Line]:
    """Lines on the run as a whole, the first of which answers where nothing is wrong.

    Args:
        findings: The most suspicious first.
        standing: How it stands.
    """
    if standing.outcome == "stuck":
        if not standing.states["running"] and any(one.verdict == "gone" for one in findings):
            yield Line(f"no process of it runs any more{_seen(standing)}, and no training returned:"
                       " it was killed, or crashed, or runs where its processes cannot be seen from"
                       " here", "alarm")  # fmt: skip
    elif standing.outcome == "over":
        yield Line(_over(standing))
    elif standing.outcome == "usual":
        yield Line("nothing is open for unusually long")
    elif standing.outcome == "idle":
        yield Line(_idle(standing))
    else:
        yield from _unknown(findings, standing)


def _say_away(standing: Standing) -> Iterator[Line]:
    """A line on the processes of which it is not known whether they live."""
    if away := standing.states["unknown"]:
        who = "a process elsewhere lives" if away == 1 else f"its {away} processes elsewhere live"
        yield Line(f"whether {who} cannot be told from here: run this where they run; the last sign"
                   f" of life of any came {_ago(standing)} by wall clocks", "quiet")  # fmt: skip


def _seen(standing: Standing) -> str:
    return f", last seen {_ago(standing)}"


def _ago(standing: Standing) -> str:
    if standing.seen_s < -_DIFFER_S:
        return f"{duration(-standing.seen_s)} from now, as clocks differ,"
    return f"{duration(max(0.0, standing.seen_s))} ago"


def _over(standing: Standing) -> str:
    if not standing.states:
        return "nothing of it has been recorded yet"
    if standing.returned:
        return f"it is over: its training returned{_seen(standing)}"
    text = f"it is over: every process has ended{_seen(standing)}"
    return text + (", and its training did not return by itself" if standing.trained else "")


def _idle(standing: Standing) -> str:
    if standing.returned:
        return "its training has returned; what its processes do since then is not recorded"
    return "nothing that is recorded is open: whether it goes on cannot be told"


def _unknown(findings: Sequence[Finding], standing: Standing) -> Iterator[Line]:
    unknown = [one for one in findings if one.verdict == "unknown"]
    if not unknown:
        was = "was" if not standing.states["running"] else "is"
        yield Line(f"nothing {was} open for unusually long, as far as can be told from here")
        return
    yield Line("nothing is past its limit, and what is usual is not known yet:")
    for one in unknown[:_NAMED]:
        if one.work is not None and one.age_s is not None:
            at_least = "" if one.member.state == "running" else "at least "
            yield Line(f"{_who_is(one)}: {_what_is(one)} open for {at_least}{duration(one.age_s)}"
                       f"{_measured(one)}")  # fmt: skip
    if len(unknown) > _NAMED:
        yield Line(f"… and {len(unknown) - _NAMED} more, below", "quiet")


def _measured(one: Finding) -> str:
    """What the age of a finding is compared with, and which rule that is."""
    inside = ""
    if one.at is not None and one.age_s is not None and one.work is not None:
        since_s = one.age_s - (one.at.start_ns - one.work.start_ns) / 1e9
        inside = f", in it {one.at.name} for {duration(since_s)}"
    if one.limit is None or one.age_s is None:
        return inside
    if one.verdict == "overdue" and one.age_s < one.limit.seconds:
        return inside + "; where it was called, that is unusually long"
    if one.limit.rule == "past" and one.p99_s is not None:
        return f"{inside}; 99 of 100 took {duration(one.p99_s)} or less, of {one.before:,}"
    told = f"told past {duration(one.limit.seconds)}"
    if one.moved_s is not None:
        inside += f"; the last thing in it ended {duration(one.moved_s)} ago"
        told = f"told {duration(one.limit.seconds)} after that"
        if one.verdict == "overdue" and one.moved_s <= one.limit.seconds:
            told = f"told past {duration(one.limit.seconds)} in all"
    if one.limit.rule == "none" or one.longest_s is None:
        return f"{inside}; none ended before: {told} (--unknown-after)"
    return (
        f"{inside}; {one.before} of {LEAST} ended before, in {duration(one.longest_s)} at most:"
        f" {told} (--unknown-times, --unknown-after)"
    )


def _who_is(one: Finding) -> str:
    """A process."""
    header, rank = one.member.header, one.member.rank
    name = f"rank {rank}" if rank is not None else clean(one.member.role, 24) or "a process"
    return f"{name} (pid {header.pid} on {clean(header.host, 24)})"


def _what_is(one: Finding) -> str:
    """What a process is at."""
    if one.work is None:
        return "nothing"
    detail = f" {clean(one.work.detail, 24)}" if one.work.detail else ""
    turns = f" after {one.work.turns} turns" if one.work.turns else ""
    return f"{one.work.name}{detail}{turns}"


def _sentence(one: Finding) -> str:
    who = _who_is(one)
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
        return f"{who} was at {_what_is(one)}{at}"
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
        text += f": {_what_is(one)} open for {at_least}{duration(one.age_s)}"
        text += _measured(one)
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
            clean(_what_is(one), 32),
            "" if (step := _step(one)) is None else str(step),
            seconds(one.age_s),
            "" if one.limit is None else seconds(one.limit.seconds),
            seconds(one.p99_s) if one.before >= LEAST else "",
            "" if one.times is None or one.before < LEAST else f"{one.times:,.1f}x",
            " < ".join(span.name for span in one.inside if span.name != "step"),
        ]
        for one in findings
    ]
    headings = (
        "< | <host | <role | rank | pid | <at | step | open for, s | told past, s | P99, s"
        " | times P99 | <inside"
    )
    title = "What each process is at"
    return table(title, headings, rows, head=16, tail=2, what="processes")


def _step(one: Finding) -> int | None:
    spans = (() if one.work is None else (one.work,)) + one.inside
    return next((span.step for span in spans if span.step is not None), None)
