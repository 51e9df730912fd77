"""Machines whose wall clocks differ: no GPU time is lost, but what times between them mean.

What ranks end together, because a collective makes them, ends at the same time on every machine:
how far apart it is on their clocks is told by every step again, and about so by the begin and end
of all else that they do. What machines do together tells it as well, as calls between them do:
there the reading of the recording has corrected it already.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.causes.cause import Cause, Saving
from rlvr_probe.analysis.causes.finding import Run
from rlvr_probe.analysis.causes.thresholds import CLOCKS_APART_S

__all__ = ["clock_skew"]

_ENDS: Final = """
WITH together AS (
    SELECT w.step_id, w.stage, w.team, p.boot, any_value(p.host) AS host, median(w.end_ns) AS end_ns
    FROM cause_work AS w JOIN process AS p USING (process)
    WHERE w.together GROUP BY ALL
), apart AS (
    SELECT b.host, b.boot, b.end_ns - a.end_ns AS ns
    FROM together AS a JOIN together AS b USING (step_id, stage, team)
    WHERE a.boot = (SELECT min(boot) FROM together) AND b.boot <> a.boot
)
SELECT any_value(host) AS host, median(ns) / 1e9 AS s, mad(ns) / 1e9 AS varies_s, count(*) AS times
FROM apart GROUP BY boot HAVING count(*) >= 3
ORDER BY abs(median(ns)) DESC
"""
"""By machine: how much later than the first one it ends what all end together, s."""

_CORRECTED: Final = """
SELECT host, abs(corrected_s) AS s FROM process WHERE corrected_s <> 0 ORDER BY s DESC LIMIT 1
"""
"""By how much the clock of a machine was corrected, s: at most."""


def clock_skew(run: Run) -> list[Cause]:
    """Clocks of machines that differ by more than time servers let them."""
    ends, corrected = run.ask(_ENDS), run.ask(_CORRECTED)
    found = [
        (abs(row["s"]), str(row["host"]), ends)
        for row in ends.dicts
        if row["varies_s"] < abs(row["s"]) / 2
    ]
    found += [(row["s"], str(row["host"]), corrected) for row in corrected.dicts]
    apart, host, answer = max(found, key=lambda one: one[0], default=(0.0, "", ends))
    if apart < CLOCKS_APART_S:
        return []
    title = f"wall clocks of two machines are {apart:.1f} s apart"
    where, worst = {"host": host}, [f"host {host}"]
    return [run.cause("clock_skew", Saving(), title, answer, where=where, worst=worst)]
