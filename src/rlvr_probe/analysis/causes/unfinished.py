"""Spans that were open far too long when a recording ends, and ranks that died before.

What a run that was killed, or that hangs, would have done next is unknown. Known is what was open,
since when, and that no GPU went further: its cost is the time from then to the end of the
recording, less what a span of its kind usually takes. A rank that died while others went on waiting
is named before what these wait in; its cost is the time since.

How long a span may be open, and which of several holds up the others, is decided by the rules of
``rlvr-probe stuck``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rlvr_probe.analysis.causes.builder import Run
from rlvr_probe.analysis.causes.cause import Cause, Saving, placed, seconds, whom
from rlvr_probe.analysis.causes.thresholds import OPEN_LEAST_S
from rlvr_probe.analysis.limits import UNCOVERED_S, Fallback, Times, fineness, limit_of
from rlvr_probe.analysis.results import Answer, Evidence, query
from rlvr_probe.analysis.statements import fill, islands, statements
from rlvr_probe.recording.between_steps import AROUND, BETWEEN, OUTSIDE
from rlvr_probe.recording.tables import Tables

__all__ = ["dead_processes", "unfinished"]

_SQL: Final = statements(__name__)
_Row = Mapping[str, Any]

_APART_S: Final = 2.0
"""How much longer others lived than a process that died before them, s. A whole job is killed
within that; a sign of life is 0.1 s old, more on a busy machine."""


def dead_processes(tables: Tables) -> list[str]:
    """A note on processes that ended without closing their journals, as by a signal; or none."""
    rows = query(tables, _SQL["died"]).dicts
    if not rows:
        return []
    first = rows[0]
    note = (
        f"{whom(rows)} died, as by a signal, and closed no journal:"
        f" {'the first of them' if len(rows) > 1 else 'it'} was last seen"
        f" {seconds(first['lived_ns'])} after its start"
    )
    if first["before_ns"] > _APART_S * 1e9:
        note += f", {seconds(first['before_ns'])} before the last sign of life of the recording"
    return [note]


_ELSEWHERE_S: Final = 30.0
"""How much longer others are seen than a rank of another machine, s: whether that runs cannot be
checked."""

_SHOWN: Final = 3
"""Processes that are listed with where they were."""

_WORDS: Final[Mapping[str, str]] = {
    "reward_fn": "reward function {}",
    "verify": "a verification by {}",
    "tool_call": "tool {}",
    "rpc": "call {}",
    "user": "span {}",
}
_UNCOVERED: Final = "what no span covers between two steps"
_PLACES: Final[Mapping[str, str]] = {
    "reward_fn": "function", "verify": "function", "tool_call": "tool",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Overdue:
    """A span that was open for longer than it may be.

    Attributes:
        row: Of the query.
        past: How long those of its kind took.
        fine: The lower, the more likely others wait for it.
    """

    row: _Row
    past: Times
    fine: int


def unfinished(run: Run) -> list[Cause]:
    """What was open at the end of each run that did not end by itself."""
    opened = run.ask(_SQL["open"], outside=OUTSIDE)
    if not opened.rows:
        return []
    rows = opened.dicts
    dead = run.ask(_SQL["dead"], here=_APART_S, elsewhere=_ELSEWHERE_S, outside=OUTSIDE)
    causes = list[Cause]()
    for attempt in dict.fromkeys(row["attempt"] for row in rows):
        own = [row for row in rows if row["attempt"] == attempt]
        gone = [row for row in dead.dicts if row["attempt"] == attempt]
        causes += _died(run, gone, own, dead) if gone else _open(run, own, opened)
    return causes


def _died(run: Run, gone: Sequence[_Row], rows: Sequence[_Row], answer: Answer) -> list[Cause]:
    first = gone[0]
    saving = Saving({first["step_id"]: 1e9 * first["until_s"]})
    dead = {row["process"] for row in gone}
    others = [row for row in rows if row["process"] not in dead]
    inside = [row for row in rows if row["process"] == first["process"]]
    how = "died" if first["state"] == "died" else "was last seen"
    title = f"{whom(gone)} {how} {seconds(1e9 * first['until_s'])} before the recording ends"
    last = _innermost(inside)[-1]
    title += f", in {_what(last)}, and no step ended after it"
    return _cause(run, saving, title, answer, gone, last, (last, *_innermost(others)))


def _open(run: Run, rows: Sequence[_Row], answer: Answer) -> list[Cause]:
    overdue = _overdue(run, rows)
    if not overdue:
        return []
    first = min(overdue, key=lambda span: (span.fine, span.row["start_ns"]))
    row, past = first.row, first.past
    alike = [
        span.row for span in overdue if span.fine == first.fine and _what(span.row) == _what(row)
    ]
    saving = Saving({row["step_id"]: 1e9 * (row["until_s"] - (past.p50_s or 0.0))})
    runs, several = row["state"] == "running", len({span["process"] for span in alike}) > 1
    verb = ("are" if several else "is") if runs else ("were" if several else "was")
    title = f"{whom(alike)} {verb} in {_what(row)} for {seconds(1e9 * row['until_s'])}, "
    title += "until now; " if runs else "and the recording ends in it; "
    if past.count and past.p50_s is not None:
        title += f"it took {seconds(1e9 * past.p50_s)} before, in the median of {past.count:,}"
    else:
        title += "none had ended before"
    others = [span.row for span in overdue if span.row not in alike]
    return _cause(run, saving, title, answer, alike, row, (*alike, *others))


def _overdue(run: Run, rows: Sequence[_Row]) -> list[_Overdue]:
    """Innermost of the spans that were open for longer than they may be."""
    ended = fill(_SQL["past"], islands=islands(_SQL["around"], "process, session, life"))
    names = sorted({row["name"] for row in rows} | {"step"})
    answer = run.ask(ended, names=names, between=BETWEEN, around=sorted(AROUND))
    past = {(name, detail): Times(*times) for name, detail, *times in answer.rows}
    longest_s = past.get(("step", None), Times()).longest_s or 0.0
    inside = {(row["process"], row["id"]) for row in rows}
    late = dict[tuple[int, int], _Overdue]()
    for row in (row for row in rows if row["since"]):
        times = past.get((row["name"], row["detail"] or None), Times())
        # Where none ended, the longest step is all that there is to compare with.
        least_s = UNCOVERED_S if row["name"] == BETWEEN else OPEN_LEAST_S
        least_s = least_s if times.count else max(least_s, longest_s)
        if row["age_s"] > limit_of(row["name"], times, Fallback(after_s=least_s)).seconds:
            outermost = (row["process"], row["parent"]) not in inside
            fine = fineness(row["name"], outermost=outermost)
            late[row["process"], row["id"]] = _Overdue(row, times, fine)
    around = {(span.row["process"], span.row["parent"]) for span in late.values()}
    return [span for key, span in late.items() if key not in around]


def _innermost(rows: Sequence[_Row]) -> list[_Row]:
    around = {(row["process"], row["parent"]) for row in rows}
    return [row for row in rows if (row["process"], row["id"]) not in around]


def _cause(
    run: Run, saving: Saving, title: str, answer: Answer, who: Sequence[_Row], what: _Row,
    others: Sequence[_Row],
) -> list[Cause]:  # fmt: skip
    _, where = placed(who[0]["rank"], "", who[0]["process"])
    where["step"] = run.number(who[0]["step_id"])
    where[_PLACES.get(what["name"], "stage")] = str(what["detail"] or what["name"])
    evidence = {"process": Evidence.of(dict.fromkeys(row["process"] for row in who))}
    worst = [_at(run, row) for row in others[:_SHOWN]]
    return run.cause(
        "unfinished", title, answer, saving, where=where, evidence=evidence, worst=worst
    )


def _what(row: _Row) -> str:
    """A span in words."""
    if row["name"] == BETWEEN:
        return _UNCOVERED
    if row["detail"] and row["name"] in _WORDS:
        return _WORDS[row["name"]].format(row["detail"])
    return str(row["name"])


def _at(run: Run, row: _Row) -> str:
    """Who was where since when."""
    since_s = (row["start_ns"] - run.extent.begin_ns) / 1e9
    return (
        f"{whom([row])} (process {row['process']}, pid {row['pid']} on {row['host']}) in"
        f" {_what(row)}, from {since_s:,.0f} s after the start of the first step on"
    )
