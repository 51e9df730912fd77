"""What a ledger cannot tell, in sentences."""

from __future__ import annotations

from rlvr_probe.analysis.ledger.categories import STAGE_WORK
from rlvr_probe.recording.tables import Tables

__all__ = ["HIDDEN", "notes_of"]

HIDDEN = (
    "waiting inside a collective of an update cannot be told from work: tensor activity was not"
    " read of every GPU that took part"
)

_UNREAD = """
SELECT count(*) FROM (
    SELECT step_id, category FROM segment WHERE starts_with(category, 'work.update')
    GROUP BY step_id, category HAVING count(DISTINCT gpu) > 1
) one ANTI JOIN hidden_wait USING (step_id, category)
"""

_WHOLE = f"""
SELECT name, count(DISTINCT stage) FROM ledger_stage stage
WHERE mode = 'train' AND end_ns > start_ns
  AND process IN (SELECT process FROM gpu_teller WHERE NOT own)
  AND stage NOT IN (SELECT stage FROM ledger_part WHERE stage IS NOT NULL)
  AND stage NOT IN (SELECT stage FROM ledger_rollout)
  AND name IN ({
    ", ".join(
        f"'{name}'"
        for name in STAGE_WORK
        if name not in ("data", "reward", "advantage", "eval", "checkpoint", "other")
    )
})
GROUP BY name
UNION ALL
SELECT name, count(*) FROM ledger_stage
WHERE mode = 'train' AND name = 'rollout' AND stage NOT IN (SELECT stage FROM ledger_rollout)
  AND process IN (SELECT process FROM gpu_teller WHERE own)
GROUP BY name
ORDER BY name
"""

_BESIDE = """
SELECT count(*) FROM device
WHERE kind = 'gpu' AND device NOT IN (SELECT device FROM gpu WHERE device IS NOT NULL)
"""

_AFTER = """
WITH ended AS (
    SELECT max(end_ns) AS end_ns, max(end_ns - start_ns) AS longest_ns FROM ledger_window
)
SELECT max(p.last_seen_ns - ended.end_ns) / 1e9 AS s
FROM process AS p, ended
WHERE process IN (SELECT process FROM gpu_teller) AND state IN ('running', 'died', 'unknown')
  AND p.last_seen_ns - ended.end_ns > greatest(longest_ns, 10e9)
"""
"""For how long a training was seen after all that is known of it, s; where its processes did not
end by themselves, and it is longer than any of its steps."""

_UNRECORDED = "SELECT count(*) FROM gpu WHERE process IS NULL AND part = 'train'"

_WIDTH = "SELECT max(width_ns) / 1e9 FROM ledger_clock"


def notes_of(tables: Tables) -> list[str]:
    """What cannot be told of this recording."""
    sql = tables.sql
    notes = list[str]()
    [[after_s]] = sql.execute(_AFTER).fetchall()
    if after_s is not None:
        notes.append(
            f"the training was seen for {after_s:,.0f} s more after its last step and what was open"
            " in it: nothing says what it did then, and it is not in the ledger"
        )
    [[gpus, known]] = sql.execute("SELECT count(*), count(device) FROM gpu").fetchall()
    if gpus and not known:
        ranks = (
            "a rank stands for one" if gpus == 1 else f"{gpus} ranks or engines stand for one each"
        )
        notes.append(f"no GPU is known that this run worked on: {ranks}")
    [[unread]] = sql.execute(_UNREAD).fetchall()
    if unread:
        notes.append(HIDDEN)
    whole = sql.execute(_WHOLE).fetchall()
    if whole:
        names = ", ".join(f"{name} ({count})" for name, count in whole)
        notes.append(
            "some stages are known only as a whole, so that waiting in them counts as work:"
            f" {names}"
        )
    [[missing]] = sql.execute(_UNRECORDED).fetchall()
    if missing:
        notes.append(f"{missing} ranks of the training recorded nothing")
    [[beside]] = sql.execute(_BESIDE).fetchall()
    if beside:
        notes.append(f"{beside} GPUs were read that nobody of this run is known to work on")
    [[width]] = sql.execute(_WIDTH).fetchall()
    if width is not None and width > 0:
        notes.append(
            f"machines wait for each other by clocks that are known to {width:.3g} s: what is"
            " shorter counts as dispatch"
        )
    return notes
