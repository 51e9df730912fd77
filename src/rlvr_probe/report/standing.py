"""What ``rlvr-probe stuck`` says first, and how one process is put into words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlvr_probe.analysis.baselines import LEAST
from rlvr_probe.analysis.finding import Finding, Standing
from rlvr_probe.report.document import Line, clean, duration

__all__ = ["measured", "say_away", "say_standing", "what_is", "who_is"]

_SHOWN = 2
_DIFFER_S = 1.0


def say_standing(findings: Sequence[Finding], standing: Standing) -> Iterator[Line]:
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


def say_away(standing: Standing) -> Iterator[Line]:
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
    for one in unknown[:_SHOWN]:
        if one.work is not None and one.age_s is not None:
            at_least = "" if one.member.state == "running" else "at least "
            yield Line(f"{who_is(one)}: {what_is(one)} open for {at_least}{duration(one.age_s)}"
                       f"{measured(one)}")  # fmt: skip
    if len(unknown) > _SHOWN:
        yield Line(f"… and {len(unknown) - _SHOWN} more, below", "quiet")


def measured(one: Finding) -> str:
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


def who_is(one: Finding) -> str:
    """A process."""
    header, rank = one.member.header, one.member.rank
    name = f"rank {rank}" if rank is not None else clean(one.member.role, 24) or "a process"
    return f"{name} (pid {header.pid} on {clean(header.host, 24)})"


def what_is(one: Finding) -> str:
    """What a process is at."""
    if one.work is None:
        return "nothing"
    detail = f" {clean(one.work.detail, 24)}" if one.work.detail else ""
    turns = f" after {one.work.turns} turns" if one.work.turns else ""
    return f"{one.work.name}{detail}{turns}"
