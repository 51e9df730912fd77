"""Machines whose wall clocks differ: no GPU time is lost, but what times between them mean.

What ranks end together, because a collective makes them, ends at the same time on every machine:
how far apart it is on their clocks is told by every step again. Calls between machines tell it as
well, and there the reading of the recording has corrected it already and says so.
"""

from __future__ import annotations

import re
from typing import Final

from rlvr_probe.analysis.causes.cause import Cause, Saving
from rlvr_probe.analysis.causes.finding import Run

__all__ = ["clock_skew"]

_APART_S: Final = 0.1
"""Less is what time servers do by themselves."""

_ENDS: Final = """
WITH together AS (
    SELECT w.step_id, w.stage, p.boot, any_value(p.host) AS host, median(w.end_ns) AS end_ns
    FROM cause_work AS w JOIN process AS p USING (process)
    WHERE w.together GROUP BY ALL
), apart AS (
    SELECT b.host, b.boot, b.end_ns - a.end_ns AS ns
    FROM together AS a JOIN together AS b USING (step_id, stage)
    WHERE a.boot = (SELECT min(boot) FROM together) AND b.boot <> a.boot
)
SELECT any_value(host) AS host, median(ns) / 1e9 AS s, mad(ns) / 1e9 AS varies_s, count(*) AS times
FROM apart GROUP BY boot HAVING count(*) >= 3
ORDER BY abs(median(ns)) DESC
"""
"""By machine: how much later than the first one it ends what all end together, s."""

_CORRECTED: Final = re.compile(r"wall clocks of two machines were at least ([0-9.]+) s apart")


def clock_skew(run: Run) -> list[Cause]:
    """Clocks of machines that differ by more than time servers let them."""
    answer = run.ask(_ENDS)
    found = [
        (abs(row["s"]), str(row["host"]))
        for row in answer.dicts
        if abs(row["s"]) >= _APART_S and row["varies_s"] < abs(row["s"]) / 2
    ]
    corrected = [float(match[1]) for note in run.tables.notes if (match := _CORRECTED.search(note))]
    found += [(one, "") for one in corrected if one >= _APART_S]
    if not found:
        return []
    apart, host = max(found)
    title = f"wall clocks of two machines are {apart:.1f} s apart"
    worst = [f"host {host}"] if host else []
    where = {"host": host} if host else {}
    return [run.cause("clock_skew", Saving(), title, answer, where=where, worst=worst)]
