"""What ``rlvr-probe stuck`` says: the suspect, its stack, what each process is doing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlvr_probe.analysis.finding import WRONG, Finding, Standing
from rlvr_probe.analysis.limits import LEAST
from rlvr_probe.report.blocks import (
    Block,
    Columns,
    Line,
    clean,
    count_of,
    duration,
    number,
    seconds,
    table,
)

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
        "findings": [_entry(finding, stacks) for finding in findings],
    }


def _entry(finding: Finding, stacks: Stacks) -> dict[str, Any]:
    header, work = finding.member.header, finding.work
    stack = stacks.get(finding.thread) if finding.member.state == "running" else None
    return {
        "verdict": finding.verdict,
        "process": header.process,
        "host": header.host,
        "pid": header.pid,
        "rank": finding.member.rank,
        "role": finding.member.role or None,
        "state": finding.member.state,
        "silent_s": finding.silent_s,
        "span": None if work is None else work.name,
        "detail": None if work is None else work.detail or None,
        "step": _step(finding),
        "turns": None if work is None else work.turns,
        "open_s": finding.age_s,
        "at": None if finding.at is None else finding.at.name,
        "inside": [span.name for span in finding.inside],
        "compared_with": finding.before,
        "p50_s": finding.p50_s,
        "p99_s": finding.p99_s,
        "longest_s": finding.longest_s,
        "limit_s": None if finding.limit is None else finding.limit.seconds,
        "rule": None if finding.limit is None else finding.limit.rule,
        "waiting": finding.waiting,
        "discarded": finding.member.sifting.discarded,
        "rounds": finding.member.sifting.rounds,
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
        hint: Why stacks are missing, and what helps.
    """
    states = (f"{count} {state}" for state, count in standing.states.items())
    blocks: list[Block] = [Line(" · ".join((clean(run, 64), *states)), "title")]
    wrong = [finding for finding in findings if finding.verdict in WRONG]
    suspects = wrong or [finding for finding in findings if finding.verdict == "apart"]
    blocks += _say_standing(findings, standing)
    for finding in suspects[:_SHOWN]:
        blocks.append(Line(_sentence(finding), "alarm" if wrong else "plain"))
        blocks += _stack(finding, stacks)
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
        if not standing.states["running"] and any(
            finding.verdict == "gone" for finding in findings
        ):
            yield Line(f"all processes are gone{_seen(standing)}, and no training returned: killed,"
                       " crashed, or out of sight of this machine", "alarm")  # fmt: skip
    elif standing.outcome == "over":
        yield Line(_over(standing))
    elif standing.outcome == "usual":
        yield Line("OK: nothing takes unusually long")
    elif standing.outcome == "idle":
        yield Line(_idle(standing))
    else:
        yield from _unknown(findings, standing)


def _say_away(standing: Standing) -> Iterator[Line]:
    """A line on the processes of which it is not known whether they live."""
    if away := standing.states["unknown"]:
        yield Line(f"{count_of(away, 'process')} on other machines, state unknown: run this there;"
                   f" last sign of life {_ago(standing)} by wall clocks", "quiet")  # fmt: skip


def _seen(standing: Standing) -> str:
    return f", last seen {_ago(standing)}"


def _ago(standing: Standing) -> str:
    if standing.seen_s < -_DIFFER_S:
        return f"{duration(-standing.seen_s)} from now, as clocks differ,"
    return f"{duration(max(0.0, standing.seen_s))} ago"


def _over(standing: Standing) -> str:
    if not standing.states:
        return "nothing recorded yet"
    if standing.returned:
        return f"finished: training returned{_seen(standing)}"
    text = f"ended: every process has ended{_seen(standing)}"
    return text + (", and training did not return by itself" if standing.trained else "")


def _idle(standing: Standing) -> str:
    if standing.returned:
        return "training returned; what its processes do since then is not recorded"
    return "nothing recorded is open: progress unknown"


def _unknown(findings: Sequence[Finding], standing: Standing) -> Iterator[Line]:
    unknown = [finding for finding in findings if finding.verdict == "unknown"]
    if not unknown:
        takes = "takes" if standing.states["running"] else "took"
        yield Line(f"nothing visible from here {takes} unusually long")
        return
    yield Line("nothing is past its limit; usual durations are not known yet:")
    for finding in unknown[:_NAMED]:
        if open_for := _open_for(finding):
            yield Line(f"{_who_is(finding)}{open_for}")
    if len(unknown) > _NAMED:
        yield Line(f"… and {len(unknown) - _NAMED} more, below", "quiet")


def _open_for(finding: Finding) -> str:
    """What is open in a process, for how long, and what that is compared with; "" if nothing is."""
    if finding.work is None or finding.age_s is None:
        return ""
    at_least = "" if finding.member.state == "running" else "at least "
    age = f"{at_least}{duration(finding.age_s)}"
    return f": {_what_is(finding)} open for {age}{_measured(finding)}"


def _measured(finding: Finding) -> str:
    """What the age of a finding is compared with, and which rule that is."""
    inside = ""
    if finding.at is not None and finding.age_s is not None and finding.work is not None:
        since_s = finding.age_s - (finding.at.start_ns - finding.work.start_ns) / 1e9
        inside = f", in it {finding.at.name} for {duration(since_s)}"
    if finding.limit is None or finding.age_s is None:
        return inside
    if finding.verdict == "overdue" and finding.age_s < finding.limit.seconds:
        return inside + "; where it was called, that is unusually long"
    if finding.limit.rule == "past" and finding.p99_s is not None:
        return f"{inside}; P99 of {finding.before:,} before: {duration(finding.p99_s)}"
    limit = f"limit {duration(finding.limit.seconds)}"
    if finding.moved_s is not None:
        inside += f"; the last thing in it ended {duration(finding.moved_s)} ago"
        limit = f"limit {duration(finding.limit.seconds)} after that"
        if finding.verdict == "overdue" and finding.moved_s <= finding.limit.seconds:
            limit = f"limit {duration(finding.limit.seconds)} in total"
    if finding.limit.rule == "none" or finding.longest_s is None:
        return f"{inside}; none ended before: {limit} (--unknown-after)"
    longest = duration(finding.longest_s)
    return (
        f"{inside}; {finding.before} of {LEAST} ended before, in {longest} at most:"
        f" {limit} (--unknown-times, --unknown-after)"
    )


def _who_is(finding: Finding) -> str:
    """A process."""
    header, rank = finding.member.header, finding.member.rank
    name = f"rank {rank}" if rank is not None else clean(finding.member.role, 24) or "a process"
    return f"{name} (pid {header.pid} on {clean(header.host, 24)})"


def _what_is(finding: Finding) -> str:
    """What a process is doing."""
    if finding.work is None:
        return "nothing"
    detail = f" {clean(finding.work.detail, 24)}" if finding.work.detail else ""
    turns = f" after {finding.work.turns} turns" if finding.work.turns else ""
    return f"{finding.work.name}{detail}{turns}"


def _sentence(finding: Finding) -> str:
    who = _who_is(finding)
    if finding.verdict == "silent" and finding.member.state == "running":
        text = f"{who} has been silent for {duration(finding.silent_s or 0.0)}: none of its threads"
        text += " can run Python, or it stands still"
    elif finding.verdict == "silent":
        text = (
            f"{who} gave its last sign of life {duration(finding.silent_s or 0.0)} before others of"
        )
        text += " its job, by wall clocks"
    elif finding.verdict == "died":
        text = f"{who} died, and others of its job go on"
    elif finding.verdict == "gone":
        at = "" if finding.age_s is None else f" for at least {duration(finding.age_s)}"
        return f"{who} was in {_what_is(finding)}{at}"
    elif finding.verdict == "missing":
        text = f"{who} has not reached where {finding.waiting} of its role wait unusually long"
    elif finding.verdict == "apart":
        text = f"{who} is not where most ranks wait"
    elif finding.verdict == "starved":
        text = f"{who} generates without training: {_sifted(finding)}"
    elif finding.waiting:
        text = f"{who} is stuck, and {finding.waiting} of its role wait for it"
    elif finding.limit is not None and finding.limit.rule != "past":
        text = f"{who} may be stuck"
    else:
        text = f"{who} is stuck"
    if open_for := _open_for(finding):
        text += open_for
    elif finding.verdict in ("apart", "missing", "died"):
        text += ": nothing open"
    return text


def _sifted(finding: Finding) -> str:
    sifting = finding.member.sifting
    if sifting.discarded:
        where = "rollout" if sifting.queued else "step"
        return (
            f"in this {where} its filter dropped {sifting.discarded:,} groups and passed none"
            " on record"
        )
    before = (
        f", at most {sifting.most_rounds} times in an earlier one" if sifting.most_rounds else ""
    )
    return (
        f"it generated {sifting.rounds} times in this step{before}: as when no group passes a"
        " filter"
    )


def _stack(finding: Finding, stacks: Stacks) -> list[Block]:
    found = stacks.get(finding.thread, ()) if finding.member.state == "running" else ()
    return [
        Line(f"    {clean(name, 40)}  {clean(file, 40)}:{line}", "quiet")
        for name, file, line in found[:12]
    ]


def _table(findings: Sequence[Finding]) -> list[Block]:
    hosts = {finding.member.header.host for finding in findings}

    def times(finding: Finding) -> str:
        known = finding.times is not None and finding.before >= LEAST
        return f"{finding.times:,.1f}x" if known else ""

    columns: Columns = {
        "<": lambda finding: "" if finding.verdict == "open" else finding.verdict,
        "<host": lambda finding: clean(finding.member.header.host, 20) if len(hosts) > 1 else "",
        "<role": lambda finding: clean(finding.member.role, 20),
        "rank": lambda finding: number(finding.member.rank, ""),
        "pid": lambda finding: str(finding.member.header.pid),
        "<doing": lambda finding: clean(_what_is(finding), 32),
        "step": lambda finding: number(_step(finding), ""),
        "open for, s": lambda finding: seconds(finding.age_s),
        "limit, s": lambda finding: seconds(finding.limit and finding.limit.seconds),
        "P99, s": lambda finding: seconds(finding.p99_s) if finding.before >= LEAST else "",
        "times P99": times,
        "<inside": lambda finding: " < ".join(
            span.name for span in finding.inside if span.name != "step"
        ),
    }
    title = "What each process is doing"
    return table(title, columns, findings, head=16, tail=2, what="processes")


def _step(finding: Finding) -> int | None:
    spans = (() if finding.work is None else (finding.work,)) + finding.inside
    return next((span.step for span in spans if span.step is not None), None)
