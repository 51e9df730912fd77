"""The timeline of the page: what every GPU that is drawn did, what it read, what was in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rlvr_probe.analysis.causes import Cause
from rlvr_probe.analysis.ledger import CATEGORIES, Ledger
from rlvr_probe.recording.tables import Tables
from rlvr_probe.report.page.chosen import chosen_gpus, chosen_steps
from rlvr_probe.report.page.plain import drawn, sampled

__all__ = ["timeline_of"]

_PIECES: Final = 1_000
"""Pieces of the time of the run in the view of all of it."""

_READINGS: Final = 600
"""Pieces of its time in which readings are drawn."""

_EXACT: Final = 150_000
"""Intervals that are drawn as they are; beyond that, of some steps only."""

_STEPS: Final = 4_000
"""Steps whose begins are marked."""

_COUNTERS: Final = {
    "sm_active": "1", "tensor_active": "1", "utilization": "1", "power_w": "W", "memory_b": "By",
    "temperature_c": "Cel", "sm_clock_hz": "Hz",
}  # fmt: skip

_REPEAT: Final = 1_000_000
"""From here on a number says how often the piece before it comes again."""

_OVER: Final = """
WITH piece AS (
    SELECT gpu, category, start_ns, end_ns, (start_ns - $begin) // $width AS a,
           (end_ns - 1 - $begin) // $width AS z
    FROM page_segment
), cut AS (
    SELECT gpu, category, start_ns, end_ns, unnest(range(a, z + 1)) AS bin FROM piece
)
SELECT gpu, bin, category, sum(least(end_ns, $begin + (bin + 1) * $width)
       - greatest(start_ns, $begin + bin * $width))::DOUBLE AS ns
FROM cut GROUP BY gpu, bin, category ORDER BY gpu, bin
"""
_FLIGHT: Final = """
WITH piece AS (
    SELECT active, start_ns + (bin * ((end_ns - start_ns) / bins))::BIGINT AS start_ns,
           start_ns + ((bin + 1) * ((end_ns - start_ns) / bins))::BIGINT AS end_ns
    FROM (SELECT unit, bin, sum(active) AS active FROM flight GROUP BY unit, bin)
    JOIN rollout USING (unit)
), cut AS (
    SELECT active, start_ns, end_ns, unnest(range(
               greatest(0, (start_ns - $begin) // $width),
               least($pieces, (end_ns - 1 - $begin) // $width + 1))) AS bin
    FROM piece WHERE end_ns > start_ns AND end_ns > $begin
)
SELECT bin, sum(active * (least(end_ns, $begin + (bin + 1) * $width)
       - greatest(start_ns, $begin + bin * $width))) / $width AS active
FROM cut GROUP BY bin ORDER BY bin
"""


def timeline_of(tables: Tables, ledger: Ledger, causes: Sequence[Cause]) -> dict[str, Any]:
    """Tracks of the GPUs that are drawn, in µs from the begin of the first step."""
    sql = tables.sql
    gpus, why = chosen_gpus(tables, causes)
    sql.execute("CREATE OR REPLACE TEMP TABLE page_gpu (gpu INTEGER)")
    sql.execute("INSERT INTO page_gpu SELECT unnest(?::INTEGER[])", [gpus])
    begin, end = ledger.begin_ns, ledger.end_ns
    sql.execute(
        "CREATE OR REPLACE TEMP TABLE page_segment AS"
        " SELECT segment.* FROM segment JOIN page_gpu USING (gpu)"
    )
    [[count]] = sql.execute("SELECT count(*) FROM page_segment").fetchall()
    steps = sql.execute(
        "SELECT step_id, number, coalesce(step_start_ns, start_ns) AS begin_ns,"
        " coalesce(step_end_ns, end_ns) FROM step WHERE number >= 1 ORDER BY begin_ns"
    ).fetchall()
    every = sampled(len(steps), _STEPS)
    windows = _windows(tables, causes, count, begin, end)
    return {
        "end_us": (end - begin) // 1_000,
        "gpus": _places(tables),
        "of": len(ledger.gpus),
        "why": why,
        "steps": [
            [step, number, (one - begin) // 1_000, (two - begin) // 1_000]
            for step, number, one, two in steps[::every]
        ],
        "longest": max(steps, key=lambda step: step[3] - step[2])[1] if steps else None,
        "pieces": _PIECES,
        "over": _over(tables, gpus, begin, end),
        "exact": [_exact(tables, gpus, begin, *window) for window in windows],
        "exact_steps": None if windows == [(None, begin, end)] else len(windows),
        "readings": _readings(tables, begin, end),
        "reading_pieces": _READINGS,
        "flight": _flight(tables, begin, end),
    }


def _places(tables: Tables) -> list[dict[str, Any]]:
    rows = tables.sql.execute(
        "SELECT gpu, key, rank, gpu.host, part, device.model FROM gpu JOIN page_gpu USING (gpu)"
        " LEFT JOIN device USING (device) ORDER BY gpu"
    ).fetchall()
    names = ("gpu", "key", "rank", "host", "part", "model")
    return [dict(zip(names, row, strict=True)) for row in rows]


def _windows(
    tables: Tables, causes: Sequence[Cause], count: int, begin: int, end: int
) -> list[tuple[int | None, int, int]]:
    """Times whose intervals are drawn as they are, and the step that each is."""
    if count <= _EXACT:
        return [(None, begin, end)]
    cost = dict(
        tables.sql.execute(
            "SELECT step_id, count(*) FROM page_segment WHERE step_id IS NOT NULL GROUP BY step_id"
        ).fetchall()
    )
    found = list[tuple[int | None, int, int]]()
    over = begin
    for step in chosen_steps(tables, causes, cost, _EXACT):
        [[first, last]] = tables.sql.execute(
            "SELECT min(start_ns), max(end_ns) FROM page_segment WHERE step_id = ?", [step]
        ).fetchall()
        first, last = max(first, over, begin), min(last, end)
        if first < last:
            found.append((step, first, last))
            over = last
    return found


def _exact(
    tables: Tables, gpus: Sequence[int], begin: int, step: int | None, first: int, last: int
) -> dict[str, Any]:
    """Of each GPU, durations and categories, one after another from the begin of the window."""
    place = {name: at for at, name in enumerate(CATEGORIES)}
    lines: dict[int, list[int]] = {gpu: [] for gpu in gpus}
    for gpu, one, two, category in tables.sql.execute(
        "SELECT gpu, start_ns, end_ns, category FROM page_segment"
        " WHERE end_ns > $first AND start_ns < $last ORDER BY gpu, start_ns",
        {"first": first, "last": last},
    ).fetchall():
        us = (min(two, last) - begin) // 1_000 - (max(one, first) - begin) // 1_000
        line, name = lines[gpu], place[category]
        if line and line[-1] == name:
            line[-2] += us
        else:
            line += (us, name)
    return {
        "step": step,
        "start": (first - begin) // 1_000,
        "end": (last - begin) // 1_000,
        "lines": [lines[gpu] for gpu in gpus],
    }


def _over(tables: Tables, gpus: Sequence[int], begin: int, end: int) -> list[list[int]]:
    """Of each GPU, of each piece of time, categories and their shares, together 100."""
    place = {name: at for at, name in enumerate(CATEGORIES)}
    width = _width(begin, end, _PIECES)
    bins: dict[int, dict[int, list[tuple[int, float]]]] = {gpu: {} for gpu in gpus}
    values = {"begin": begin, "width": width}
    for gpu, bin_, category, ns in tables.sql.execute(_OVER, values).fetchall():
        bins[gpu].setdefault(bin_, []).append((place[category], ns))
    return [_packed(bins[gpu]) for gpu in gpus]


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
    more = {name for name, *_ in sorted(shares, key=lambda one: -one[2])[:left]}
    return [
        name * 128 + whole + (name in more) for name, whole, _ in shares if whole or name in more
    ]


def _readings(tables: Tables, begin: int, end: int) -> list[dict[str, Any]]:
    """Counters of the GPUs that are drawn: of each piece of time the mean.

    In 1/1000 of the most there is; -1 where nothing was read.
    """
    width = _width(begin, end, _READINGS)
    gpus = [
        gpu for (gpu,) in tables.sql.execute("SELECT gpu FROM page_gpu ORDER BY gpu").fetchall()
    ]
    found = list[dict[str, Any]]()
    for counter, unit in _COUNTERS.items():
        rows = tables.sql.execute(
            "SELECT gpu, (reading.end_ns - 1 - $begin) // $width AS bin, avg(value) FROM reading"
            " JOIN gpu USING (device) JOIN page_gpu USING (gpu)"
            " WHERE counter = $counter AND reading.end_ns > $begin AND reading.end_ns <= $end"
            " GROUP BY gpu, bin",
            {"begin": begin, "end": end, "width": width, "counter": counter},
        ).fetchall()
        if not rows:
            continue
        top = 1.0 if unit == "1" else max(value for *_, value in rows) or 1.0
        lines = {gpu: [-1] * _READINGS for gpu in gpus}
        for gpu, bin_, value in rows:
            lines[gpu][min(bin_, _READINGS - 1)] = round(1000 * value / top)
        found.append(
            {"counter": counter, "unit": unit, "top": drawn(top), "lines": list(lines.values())}
        )
    return found


def _flight(tables: Tables, begin: int, end: int) -> list[Any] | None:
    """Mean number of sequences in flight in each piece of time; None if that is not known."""
    if not tables.has("flight", "rollout"):
        return None
    values = {"begin": begin, "width": _width(begin, end, _PIECES), "pieces": _PIECES}
    rows = tables.sql.execute(_FLIGHT, values).fetchall()
    if not rows:
        return None
    line: list[Any] = [0] * _PIECES
    for bin_, active in rows:
        line[bin_] = round(active, 1)
    return line


def _width(begin: int, end: int, pieces: int) -> int:
    return max(1, -(-(end - begin) // pieces))
