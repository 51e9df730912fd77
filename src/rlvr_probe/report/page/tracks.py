"""The timeline of the page: what every GPU that is drawn did, what it read, what was in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rlvr_probe.analysis.causes import Cause
from rlvr_probe.analysis.ledger import CATEGORIES, Ledger
from rlvr_probe.analysis.page.selection import together
from rlvr_probe.analysis.page.timeline import COUNTERS, PIECES, READINGS, Timeline, Window
from rlvr_probe.recording.tables import Tables
from rlvr_probe.report.page.plain import drawn

__all__ = ["timeline_of"]

_STEPS: Final = 4_000
"""Steps whose begins are marked."""

_REPEAT: Final = 1_000_000
"""From here on a number says how often the piece before it comes again."""

_PLACE: Final = {name: at for at, name in enumerate(CATEGORIES)}


def timeline_of(tables: Tables, ledger: Ledger, causes: Sequence[Cause]) -> dict[str, Any]:
    """Tracks of the GPUs that are drawn, in µs from the begin of the first step."""
    begin, end = ledger.begin_ns, ledger.end_ns
    asked = Timeline(tables, causes, begin, end)
    steps = asked.steps()
    every = together(len(steps), _STEPS)
    windows = asked.windows()
    return {
        "end_us": (end - begin) // 1_000,
        "gpus": asked.places(),
        "of": len(ledger.gpus),
        "why": asked.why,
        "steps": [
            [step, number, (one - begin) // 1_000, (two - begin) // 1_000]
            for step, number, one, two in steps[::every]
        ],
        "longest": max(steps, key=lambda step: step[3] - step[2])[1] if steps else None,
        "pieces": PIECES,
        "over": _over(asked),
        "exact": [_exact(asked, begin, window) for window in windows],
        "exact_steps": None if windows == [Window(None, begin, end)] else len(windows),
        "readings": _readings(asked),
        "reading_pieces": READINGS,
        "flight": _flight(asked),
    }


def _exact(asked: Timeline, begin: int, window: Window) -> dict[str, Any]:
    """Of each GPU, durations and categories, one after another from the begin of the window."""
    first, last = window.first_ns, window.last_ns
    lines: dict[int, list[int]] = {gpu: [] for gpu in asked.gpus}
    for gpu, one, two, category in asked.exact(window).rows:
        us = (min(two, last) - begin) // 1_000 - (max(one, first) - begin) // 1_000
        line, name = lines[gpu], _PLACE[category]
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


def _over(asked: Timeline) -> list[list[int]]:
    """Of each GPU, of each piece of time, categories and their shares, together 100."""
    bins: dict[int, dict[int, list[tuple[int, float]]]] = {gpu: {} for gpu in asked.gpus}
    for gpu, bin_, category, ns in asked.pieces().rows:
        bins[gpu].setdefault(bin_, []).append((_PLACE[category], ns))
    return [_packed(one) for one in bins.values()]


def _packed(bins: dict[int, list[tuple[int, float]]]) -> list[int]:
    """Numbers ``category * 128 + share``; a piece ends when its shares are 100 together."""
    line = list[int]()
    before = list[int]()
    again = 0
    for bin_ in range(PIECES):
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
    more = {name for name, *_ in sorted(shares, key=lambda one: -one[2])[:left]}
    return [
        name * 128 + whole + (name in more) for name, whole, _ in shares if whole or name in more
    ]


def _readings(asked: Timeline) -> list[dict[str, Any]]:
    """Counters of the GPUs that are drawn: of each piece of time the mean.

    In 1/1000 of the most there is; -1 where nothing was read.
    """
    found = list[dict[str, Any]]()
    for counter, unit in COUNTERS.items():
        rows = asked.readings(counter).rows
        if not rows:
            continue
        top = 1.0 if unit == "1" else max(value for *_, value in rows) or 1.0
        lines = {gpu: [-1] * READINGS for gpu in asked.gpus}
        for gpu, bin_, value in rows:
            lines[gpu][min(bin_, READINGS - 1)] = round(1000 * value / top)
        found.append(
            {"counter": counter, "unit": unit, "top": drawn(top), "lines": list(lines.values())}
        )
    return found


def _flight(asked: Timeline) -> list[Any] | None:
    """Mean number of sequences in flight in each piece of time; None if that is not known."""
    found = asked.flight()
    if found is None or not found.rows:
        return None
    line: list[Any] = [0] * PIECES
    for bin_, active in found.rows:
        line[bin_] = round(active, 1)
    return line
