"""A rank that is longer than its peers in one part of every step, and not in others.

A part is a stage, its generation, its tools or its reward functions. Samples of a rank may be
longer by chance in some steps; a rank that is late in nearly all of them has a reason of its own.
What it generates longer because it has more tokens, or the longest response, is taken off first.
The replay gives it the mean of its peers in that part.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.causes.cause import Cause, Saving
from rlvr_probe.analysis.causes.finding import Run
from rlvr_probe.analysis.causes.thresholds import STAGE_MIN, STAGE_SURE, STAGE_USUAL
from rlvr_probe.analysis.causes.words import placed, seconds
from rlvr_probe.analysis.results import Evidence
from rlvr_probe.analysis.statements import statements

__all__ = ["late_ranks"]

_SQL: Final = statements(__name__)

_FEW: Final = 5
"""Steps from which on "nearly all" means something."""


def late_ranks(run: Run) -> list[Cause]:
    """Ranks that make others wait in one part of the steps."""
    rows = run.ask(
        _SQL["late"], few=_FEW, least=STAGE_MIN, often=STAGE_USUAL, sure=STAGE_SURE
    ).dicts
    found = list[Cause]()
    for row in rows:
        answer = run.ask(_SQL["replay"], process=row["process"], stage=row["stage"])
        saving = Saving.of(answer.rows)
        if run.is_noise(saving):
            continue
        name, place = placed(row["rank"], row["team"], row["process"])
        title = f"{name} is {seconds(row['ns'])} a step later than its peers in {row['stage']}"
        evidence = {"process": Evidence.of([row["process"]])}
        place["stage"] = str(row["stage"])
        found.append(run.cause("slow_rank", saving, title, answer, where=place, evidence=evidence))
    return found
