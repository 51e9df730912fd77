"""Which GPUs and steps are drawn, what they did and read, and what was in flight, by time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, Final

from rlvr_probe.analysis.causes import Cause
from rlvr_probe.analysis.ledger import CATEGORIES, Ledger
from rlvr_probe.analysis.results import query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["GPUS", "timeline_of", "together"]

_SQL: Final = statements(__name__)

GPUS: Final = 48
"""GPUs that are drawn; all are counted."""

_ENDS: Final = 8
"""Of these, so many that waited least, and most."""


def together(count: int, most: int) -> int:
    """Of ``count`` things, how many make one so that there are at most ``most``."""
    return max(1, -(-count // most))


def _even(of: Sequence[int], count: int) -> Iterator[int]:
    """``count`` of them, evenly spaced, the coarsest first."""
    if not of:
        return
    whole = 1
    while whole < count * 2:
        for part in range(whole + 1):
            yield of[min(len(of) - 1, part * (len(of) - 1) // whole)]
        whole *= 2


def _first(count: int, *some: Iterable[int]) -> list[int]:
    """The first ``count`` different ones."""
    return list(dict.fromkeys(chain(*some)))[:count]


def _ids(cause: Cause, kind: str) -> tuple[int, ...]:
    return cause.evidence[kind].ids if kind in cause.evidence else ()


def _chosen_gpus(tables: Tables, causes: Sequence[Cause]) -> tuple[list[int], dict[str, int]]:
    """Numbers of the GPUs that are drawn, by rank, and how many there are for which reason."""
    places = tables.sql.execute(_SQL["places"]).fetchall()
    every = [gpu for gpu, *_ in places]
    if len(every) <= GPUS:
        return every, {}
    named = (
        gpu
        for cause in causes
        for gpu, process, device, rank in places
        if (rank is not None and rank == cause.where.get("rank"))
        or process in _ids(cause, "process")
        or device in _ids(cause, "device")
    )
    waited = [gpu for gpu, _ in tables.sql.execute(_SQL["waited"]).fetchall()]
    causing = _first(GPUS // 2, named)
    ends = _first(len(causing) + 2 * _ENDS, causing, waited[:_ENDS], waited[::-1][:_ENDS])
    chosen = _first(GPUS, ends, _even(every, GPUS), every)
    why = {
        "named": len(causing), "ends": len(ends) - len(causing), "even": len(chosen) - len(ends),
    }  # fmt: skip
    return [gpu for gpu in every if gpu in chosen], why


def _chosen_steps(
    tables: Tables, causes: Sequence[Cause], cost: dict[int, int], most: int
) -> list[int]:
    """Steps that are drawn exactly, in order of their start.

    Args:
        tables: With the ledger.
        causes: Whose steps come first.
        cost: By step_id, what it takes to draw it.
        most: What all of them may take.
    """
    steps = tables.sql.execute(_SQL["durations"]).fetchall()
    order = [step for step, _ in steps if step in cost]
    took = dict(steps)
    longest = sorted(order, key=lambda step: -took[step])
    place = {step: at for at, step in enumerate(order)}
    named = (step for cause in causes for step in _ids(cause, "step")[:5])
    median = longest[len(longest) // 2 :][:1]
    ends = (*order[:1], *order[-1:])
    wished = _first(
        len(order), (step for step in named if step in cost), longest[:8], median, ends,
        _even(order, len(order)),
    )  # fmt: skip
    found, left = list[int](), most
    for step in wished:
        if cost[step] > left:
            break
        left -= cost[step]
        found.append(step)
    return sorted(found, key=lambda step: place[step])


_PIECES: Final = 1_000
"""Pieces of the time of the run in the view of all of it."""

_READINGS: Final = 600
"""Pieces of its time in which readings are drawn."""

_COUNTERS: Final = {
    "sm_active": "1", "tensor_active": "1", "utilization": "1", "power_w": "W", "memory_b": "By",
    "temperature_c": "Cel", "sm_clock_hz": "Hz",
}  # fmt: skip
"""Counters that are drawn, and their units."""

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
    gpus, why = _chosen_gpus(tables, causes)
    query(tables, _SQL["make_gpus"], gpus=gpus)
    tables.sql.execute(_SQL["make_segments"])
    steps = tables.sql.execute(_SQL["steps"]).fetchall()
    every = together(len(steps), _STEPS)
    windows = _windows(tables, causes, begin, end)
    return {
        "end_us": (end - begin) // 1_000,
        "gpus": query(tables, _SQL["gpus"]).dicts,
        "of": len(ledger.gpus),
        "why": why,
        "steps": [
            [step, number, (from_ns - begin) // 1_000, (to_ns - begin) // 1_000]
            for step, number, from_ns, to_ns in steps[::every]
        ],
        "longest": max(steps, key=lambda step: step[3] - step[2])[1] if steps else None,
        "pieces": _PIECES,
        "over": _over(tables, gpus, begin, end),
        "exact": [_exact(tables, gpus, begin, window) for window in windows],
        "exact_steps": None if windows == [_Window(None, begin, end)] else len(windows),
        "readings": _readings(tables, gpus, begin, end),
        "reading_pieces": _READINGS,
        "flight": _flight(tables, begin, end),
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


def _windows(tables: Tables, causes: Sequence[Cause], begin: int, end: int) -> list[_Window]:
    """Times whose intervals are drawn as they are: all of the run, or some of its steps."""
    [[count]] = tables.sql.execute(_SQL["count"]).fetchall()
    if count <= _EXACT:
        return [_Window(None, begin, end)]
    cost = dict(tables.sql.execute(_SQL["costs"]).fetchall())
    windows = list[_Window]()
    over = begin
    for step in _chosen_steps(tables, causes, cost, _EXACT):
        [first, last] = query(tables, _SQL["extent"], step=step).row
        first, last = max(first, over, begin), min(last, end)
        if first < last:
            windows.append(_Window(step, first, last))
            over = last
    return windows


def _exact(tables: Tables, gpus: Sequence[int], begin: int, window: _Window) -> dict[str, Any]:
    """Of each GPU, durations and categories, one after another from the start of the window."""
    first, last = window.first_ns, window.last_ns
    lines: dict[int, list[int]] = {gpu: [] for gpu in gpus}
    intervals = query(tables, _SQL["exact"], first=first, last=last)
    for gpu, start_ns, end_ns, category in intervals.rows:
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


def _over(tables: Tables, gpus: Sequence[int], begin: int, end: int) -> list[list[int]]:
    """Of each GPU, of each piece of time, categories and their shares, together 100."""
    pieces: dict[int, dict[int, list[tuple[int, float]]]] = {gpu: {} for gpu in gpus}
    width = _width(_PIECES, begin, end)
    for gpu, piece, category, ns in query(tables, _SQL["pieces"], begin=begin, width=width).rows:
        pieces[gpu].setdefault(piece, []).append((_INDEX[category], ns))
    return [_packed(by_piece) for by_piece in pieces.values()]


def _packed(by_piece: dict[int, list[tuple[int, float]]]) -> list[int]:
    """Numbers ``category * 128 + share``; a piece ends when its shares are 100 together."""
    line = list[int]()
    pieces = (_hundred(sorted(by_piece.get(piece, ()))) for piece in range(_PIECES))
    for shares, alike in groupby(pieces):
        again = sum(1 for _ in alike) - 1
        line += [*shares, *([_REPEAT + again] if again else [])]
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


def _readings(tables: Tables, gpus: Sequence[int], begin: int, end: int) -> list[dict[str, Any]]:
    """Counters of the GPUs that are drawn: of each piece of time the mean.

    In 1/1000 of the most there is; -1 where nothing was read.
    """
    readings = list[dict[str, Any]]()
    times = {"begin": begin, "end": end, "width": _width(_READINGS, begin, end)}
    for counter, unit in _COUNTERS.items():
        rows = query(tables, _SQL["readings"], counter=counter, **times).rows
        if not rows:
            continue
        top = 1.0 if unit == "1" else max(value for *_, value in rows) or 1.0
        lines = {gpu: [-1] * _READINGS for gpu in gpus}
        for gpu, piece, value in rows:
            lines[gpu][min(piece, _READINGS - 1)] = round(1000 * value / top)
        most, of_gpus = float(f"{top:.6g}"), list(lines.values())
        readings.append({"counter": counter, "unit": unit, "top": most, "lines": of_gpus})
    return readings


def _flight(tables: Tables, begin: int, end: int) -> list[Any] | None:
    """Mean number of sequences in flight in each piece of time; None if that is not known."""
    if not tables.has("flight", "rollout"):
        return None
    times = {"begin": begin, "width": _width(_PIECES, begin, end), "pieces": _PIECES}
    rows = query(tables, _SQL["flight"], **times).rows
    if not rows:
        return None
    line: list[Any] = [0] * _PIECES
    for piece, active in rows:
        line[piece] = round(active, 1)
    return line


def _width(pieces: int, begin: int, end: int) -> int:
    return max(1, -(-(end - begin) // pieces))
