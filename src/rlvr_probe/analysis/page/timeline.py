"""What every GPU that is drawn did, what it read, and what was in flight, in pieces of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rlvr_probe.analysis.causes import Cause
from rlvr_probe.analysis.figures import Answer, query
from rlvr_probe.analysis.ledger import CATEGORIES, Ledger
from rlvr_probe.analysis.page.selection import chosen_gpus, chosen_steps, together
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["timeline_of"]

_PIECES: Final = 1_000
"""Pieces of the time of the run in the view of all of it."""

_READINGS: Final = 600
"""Pieces of its time in which readings are drawn."""

_COUNTERS: Final = {
    "sm_active": "1", "tensor_active": "1", "utilization": "1", "power_w": "W", "memory_b": "By",
    "temperature_c": "Cel", "sm_clock_hz": "Hz",
}  # fmt: skip
"""Counters that are drawn, and their units."""

_SQL: Final = statements(__name__)

_STEPS: Final = 4_000
"""Steps whose starts are marked."""

_REPEAT: Final = 1_000_000
"""From here on a number says how often the piece before it comes again."""

_INDEX: Final = {name: at for at, name in enumerate(CATEGORIES)}

_EXACT: Final = 150_000
"""Intervals that are drawn as they are; beyond that, of some steps only."""


def timeline_of(tables: Tables, ledger: Ledger, causes: Sequence[Cause]) -> dict[str, Any]:
    """Tracks of the GPUs that are drawn, in µs from the start of the first step."""
    begin, end = ledger.begin_ns, ledger.end_ns
    asked = _Timeline(tables, causes, begin, end)
    steps = asked.steps()
    every = together(len(steps), _STEPS)
    windows = asked.windows()
    return {
        "end_us": (end - begin) // 1_000,
        "gpus": asked.places(),
        "of": len(ledger.gpus),
        "why": asked.why,
        "steps": [
            [step, number, (from_ns - begin) // 1_000, (to_ns - begin) // 1_000]
            for step, number, from_ns, to_ns in steps[::every]
        ],
        "longest": max(steps, key=lambda step: step[3] - step[2])[1] if steps else None,
        "pieces": _PIECES,
        "over": _over(asked),
        "exact": [_exact(asked, begin, window) for window in windows],
        "exact_steps": None if windows == [_Window(None, begin, end)] else len(windows),
        "readings": _readings(asked),
        "reading_pieces": _READINGS,
        "flight": _flight(asked),
    }


@dataclass(frozen=True, slots=True)
class _Window:
    """Time in which intervals are drawn as they are.

    Attributes:
        step: Whose ``step_id``; None if it is all there is.
        first_ns, last_ns: From when to when.
    """

    step: int | None
    first_ns: int
    last_ns: int


class _Timeline:
    """The time of a run, asked piece by piece.

    Attributes:
        gpus: Numbers of the GPUs that are drawn, in order.
        why: How many of them there are for which reason.
    """

    def __init__(self, tables: Tables, causes: Sequence[Cause], begin_ns: int, end_ns: int) -> None:
        """Choose what is drawn, into the tables ``page_gpu`` and ``page_segment``."""
        self._tables, self._causes = tables, causes
        self._begin, self._end = begin_ns, end_ns
        self.gpus, self.why = chosen_gpus(tables, causes)
        query(tables, _SQL["make_gpus"], gpus=self.gpus)
        tables.sql.execute(_SQL["make_segments"])

    def places(self) -> list[dict[str, Any]]:
        """Who the GPUs are."""
        return query(self._tables, _SQL["gpus"]).dicts

    def steps(self) -> Sequence[tuple[Any, ...]]:
        """``step_id``, number, begin and end of each step, ns."""
        return self._tables.sql.execute(_SQL["steps"]).fetchall()

    def windows(self) -> list[_Window]:
        """Times whose intervals are drawn as they are: all of the run, or some of its steps."""
        sql = self._tables.sql
        [[count]] = sql.execute(_SQL["count"]).fetchall()
        if count <= _EXACT:
            return [_Window(None, self._begin, self._end)]
        cost = dict(sql.execute(_SQL["costs"]).fetchall())
        found = list[_Window]()
        over = self._begin
        for step in chosen_steps(self._tables, self._causes, cost, _EXACT):
            [first, last] = query(self._tables, _SQL["extent"], step=step).row
            first, last = max(first, over, self._begin), min(last, self._end)
            if first < last:
                found.append(_Window(step, first, last))
                over = last
        return found

    def exact(self, window: _Window) -> Answer:
        """GPU, start, end and category of each interval that reaches into ``window``."""
        return query(self._tables, _SQL["exact"], first=window.first_ns, last=window.last_ns)

    def pieces(self) -> Answer:
        """GPU, piece, category and ns, of each of the :data:`_PIECES`."""
        width = self._width(_PIECES)
        return query(self._tables, _SQL["pieces"], begin=self._begin, width=width)

    def readings(self, counter: str) -> Answer:
        """GPU, piece and mean of what was read of a counter in each of the :data:`_READINGS`."""
        times = {"begin": self._begin, "end": self._end, "width": self._width(_READINGS)}
        return query(self._tables, _SQL["readings"], counter=counter, **times)

    def flight(self) -> Answer | None:
        """Piece and mean number of sequences in flight; None if that is not known."""
        if not self._tables.has("flight", "rollout"):
            return None
        times = {"begin": self._begin, "width": self._width(_PIECES), "pieces": _PIECES}
        return query(self._tables, _SQL["flight"], **times)

    def _width(self, pieces: int) -> int:
        return max(1, -(-(self._end - self._begin) // pieces))


def _exact(asked: _Timeline, begin: int, window: _Window) -> dict[str, Any]:
    """Of each GPU, durations and categories, one after another from the begin of the window."""
    first, last = window.first_ns, window.last_ns
    lines: dict[int, list[int]] = {gpu: [] for gpu in asked.gpus}
    for gpu, start_ns, end_ns, category in asked.exact(window).rows:
        us = (min(end_ns, last) - begin) // 1_000 - (max(start_ns, first) - begin) // 1_000
        line, name = lines[gpu], _INDEX[category]
        if line and line[-1] == name:
            line[-2] += us
        else:
            line += (us, name)
    return {
        "step": window.step,
        "start": (first - begin) // 1_000,
        "end": (last - begin) // 1_000,
        "lines": list(lines.values()),
    }


def _over(asked: _Timeline) -> list[list[int]]:
    """Of each GPU, of each piece of time, categories and their shares, together 100."""
    bins: dict[int, dict[int, list[tuple[int, float]]]] = {gpu: {} for gpu in asked.gpus}
    for gpu, bin_, category, ns in asked.pieces().rows:
        bins[gpu].setdefault(bin_, []).append((_INDEX[category], ns))
    return [_packed(by_bin) for by_bin in bins.values()]


def _packed(bins: dict[int, list[tuple[int, float]]]) -> list[int]:
    """Numbers ``category * 128 + share``; a piece ends when its shares are 100 together."""
    line = list[int]()
    before = list[int]()
    again = 0
    for bin_ in range(_PIECES):
        piece = _hundred(sorted(bins.get(bin_, ())))
        if piece == before:
            again += 1
            continue
        if again:
            line.append(_REPEAT + again)
        again, before = 0, piece
        line += piece
    if again:
        line.append(_REPEAT + again)
    return line


def _hundred(parts: Sequence[tuple[int, float]]) -> list[int]:
    """Shares in whole percent that are 100 together; of nothing, the last category."""
    total = sum(ns for _, ns in parts)
    if not total:
        return [(len(CATEGORIES) - 1) * 128 + 100]
    shares = [(name, int(100 * ns / total), 100 * ns / total % 1) for name, ns in parts]
    left = 100 - sum(whole for _, whole, _ in shares)
    more = {name for name, *_ in sorted(shares, key=lambda part: -part[2])[:left]}
    return [
        name * 128 + whole + (name in more) for name, whole, _ in shares if whole or name in more
    ]


def _readings(asked: _Timeline) -> list[dict[str, Any]]:
    """Counters of the GPUs that are drawn: of each piece of time the mean.

    In 1/1000 of the most there is; -1 where nothing was read.
    """
    found = list[dict[str, Any]]()
    for counter, unit in _COUNTERS.items():
        rows = asked.readings(counter).rows
        if not rows:
            continue
        top = 1.0 if unit == "1" else max(value for *_, value in rows) or 1.0
        lines = {gpu: [-1] * _READINGS for gpu in asked.gpus}
        for gpu, bin_, value in rows:
            lines[gpu][min(bin_, _READINGS - 1)] = round(1000 * value / top)
        found.append(
            {
                "counter": counter,
                "unit": unit,
                "top": float(f"{top:.6g}"),
                "lines": list(lines.values()),
            }
        )
    return found


def _flight(asked: _Timeline) -> list[Any] | None:
    """Mean number of sequences in flight in each piece of time; None if that is not known."""
    found = asked.flight()
    if found is None or not found.rows:
        return None
    line: list[Any] = [0] * _PIECES
    for bin_, active in found.rows:
        line[bin_] = round(active, 1)
    return line
