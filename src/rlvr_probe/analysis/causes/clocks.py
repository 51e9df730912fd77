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
from rlvr_probe.analysis.statements import statements

__all__ = ["clock_skew"]

_SQL: Final = statements(__name__)


def clock_skew(run: Run) -> list[Cause]:
    """Clocks of machines that differ by more than time servers let them."""
    ends, corrected = run.ask(_SQL["ends"]), run.ask(_SQL["corrected"])
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
