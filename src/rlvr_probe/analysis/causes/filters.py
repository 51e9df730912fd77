"""A filter that throws away so many groups that a step has to generate again.

What a step lasts longer is the time from the end of its first generation to that of its last.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.causes.cause import Cause, Saving
from rlvr_probe.analysis.causes.finding import Run
from rlvr_probe.analysis.causes.thresholds import FEW_KEPT
from rlvr_probe.analysis.causes.words import per_cent

__all__ = ["aggressive_filter"]

_KEPT: Final = """
SELECT count(*) FILTER (g.kept) AS kept, count(*) FILTER (NOT g.kept) AS thrown_away
FROM prompt_group AS g JOIN kept_batch AS b USING (batch_id)
WHERE b.mode = 'train' AND NOT b.queued
"""

_AGAIN: Final = """
WITH rounds AS (
    SELECT b.step_id, b.batch_id, b.ordinal, max(t.end_ns) AS end_ns
    FROM kept_batch AS b JOIN kept_trajectory AS t USING (batch_id)
    WHERE b.mode = 'train' AND NOT b.queued AND b.step_id IS NOT NULL GROUP BY ALL
)
SELECT step_id, (max(end_ns) - min_by(end_ns, ordinal))::DOUBLE AS ns, count(*) AS rounds
FROM rounds GROUP BY step_id ORDER BY step_id
"""
"""Wall time of each step after its first generation, until its last one ended."""


def aggressive_filter(run: Run) -> list[Cause]:
    """A filter that few groups pass, if it makes steps generate again."""
    kept, thrown_away = run.ask(_KEPT).row
    if not thrown_away or kept >= FEW_KEPT * (kept + thrown_away):
        return []
    answer = run.ask(_AGAIN)
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
