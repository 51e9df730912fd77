"""A filter that throws away so many groups that a step has to generate again.

What a step lasts longer is the time from the end of its first generation to that of its last.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.causes.cause import Cause, Saving
from rlvr_probe.analysis.causes.finding import Run
from rlvr_probe.analysis.causes.thresholds import FEW_KEPT
from rlvr_probe.analysis.causes.words import per_cent
from rlvr_probe.analysis.statements import statements

__all__ = ["aggressive_filter"]

_SQL: Final = statements(__name__)


def aggressive_filter(run: Run) -> list[Cause]:
    """A filter that few groups pass, if it makes steps generate again."""
    kept, thrown_away = run.ask(_SQL["kept"]).row
    if not thrown_away or kept >= FEW_KEPT * (kept + thrown_away):
        return []
    answer = run.ask(_SQL["again"])
    saving = Saving.of(answer.rows)
    if run.is_noise(saving):
        return []
    rounds = sorted((-count, run.numbers.get(step, step)) for step, _, count in answer.rows)
    again = sum(count > 1 for _, _, count in answer.rows)
    title = (
        f"the filter passes {per_cent(kept / (kept + thrown_away))} of the groups, and {again} of"
        f" {len(answer.rows)} steps generated again"
    )
    worst = [f"step {number} generated {-count} times" for count, number in rounds[:3]]
    return [run.cause("aggressive_filter", saving, title, answer, worst=worst)]
