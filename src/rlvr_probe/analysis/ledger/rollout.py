"""What engine calls and trajectories tell of each GPU."""

from __future__ import annotations

from rlvr_probe.analysis.ledger.categories import NUMBER
from rlvr_probe.analysis.tables import Tables

__all__ = ["find_rollout", "paint_rollout"]

_CALL = """
CREATE OR REPLACE TEMP VIEW ledger_call AS
SELECT attempt, coalesce(engine, CASE WHEN home.process IS NULL THEN -1 ELSE -2 - home.process END)
           AS engine, batch_id, mode, turn.start_ns, turn.end_ns
FROM turn JOIN trajectory USING (trajectory_id) JOIN process USING (process)
LEFT JOIN ledger_home home USING (process)
UNION ALL
SELECT attempt, coalesce(owner.engine, CASE WHEN home.process IS NULL THEN -1
                                            ELSE -2 - home.process END), NULL, NULL,
       start_ns, end_ns
FROM engine_call LEFT JOIN ledger_home home USING (process)
LEFT JOIN engine_owner owner USING (attempt, process)
"""
"""Every call of an engine; one that has no number is that of the process, or else a server."""

_BUSY = """
CREATE OR REPLACE TEMP TABLE ledger_busy AS
WITH ordered AS (
    SELECT *, max(end_ns) OVER (PARTITION BY attempt, engine, batch_id ORDER BY start_ns, end_ns
                                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
    FROM ledger_call WHERE start_ns IS NOT NULL
), numbered AS (
    SELECT *, count(*) FILTER (before_ns IS NULL OR start_ns > before_ns)
                  OVER (PARTITION BY attempt, engine, batch_id ORDER BY start_ns, end_ns
                        ROWS UNBOUNDED PRECEDING) AS part
    FROM ordered
)
SELECT attempt, engine, batch_id, any_value(mode) AS mode, min(start_ns) AS start_ns,
       max(end_ns) AS end_ns
FROM numbered GROUP BY attempt, engine, batch_id, part
"""
"""When an engine had at least one sequence of a batch."""

_BATCH = """
CREATE OR REPLACE TEMP TABLE ledger_batch AS
SELECT batch_id, any_value(batch.step_id) AS step_id, any_value(batch.mode) AS mode,
       any_value(queued) AS queued, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
       max(decoded_ns) AS decoded_ns
FROM batch JOIN trajectory USING (batch_id)
LEFT JOIN (SELECT trajectory_id, max(end_ns) AS decoded_ns FROM turn GROUP BY trajectory_id)
    USING (trajectory_id)
WHERE own_times
GROUP BY batch_id
"""
"""Of batches whose trajectories have times of their own: first start, last decoded, last told."""

_ROLLOUT = """
CREATE OR REPLACE TEMP TABLE ledger_rollout AS
SELECT DISTINCT stage.stage, false AS own
FROM ledger_stage stage JOIN ledger_batch batch USING (step_id, mode)
WHERE stage.name = 'rollout' AND decoded_ns IS NOT NULL
  AND stage.process IN (SELECT process FROM gpu_teller WHERE NOT own)
UNION
SELECT DISTINCT stage.stage, true
FROM ledger_stage stage JOIN ledger_home home USING (process)
JOIN ledger_busy busy ON busy.engine = -2 - home.process AND busy.start_ns < stage.end_ns
    AND busy.end_ns > stage.start_ns
WHERE stage.name = 'rollout'
"""
"""Rollout stages of which it is known when each engine had work."""


def find_rollout(tables: Tables) -> None:
    """Make the tables of what engines did; ``ledger_stage`` is there."""
    tables.sql.execute("""
        CREATE OR REPLACE TEMP TABLE ledger_home AS
        SELECT DISTINCT process FROM gpu_teller
        WHERE own AND NOT (SELECT coalesce(contains(engine, 'server'), false) FROM run)
    """)
    for statement in (_CALL, _BUSY, _BATCH, _ROLLOUT):
        tables.sql.execute(statement)


def paint_rollout(tables: Tables) -> None:
    """Paint work of engines, and waiting for what they generate."""
    tables.sql.execute(f"""
        INSERT INTO paint
        SELECT gpu, CASE WHEN mode = 'eval' THEN {NUMBER["eval"]} ELSE {NUMBER["rollout"]} END,
               start_ns, end_ns
        FROM ledger_busy JOIN engine_gpu USING (attempt, engine)
        UNION ALL
        SELECT gpu, {NUMBER["rollout"]}, start_ns, end_ns
        FROM ledger_busy JOIN gpu_process ON engine = -2 - process
    """)
    tables.sql.execute(f"""
        INSERT INTO paint
        WITH generated AS (
            SELECT gpu, batch.start_ns, decoded_ns, batch.end_ns
            FROM ledger_batch batch JOIN step USING (step_id)
            JOIN gpu_teller told ON told.attempt = step.attempt AND NOT told.own
            WHERE mode = 'train' AND NOT queued AND decoded_ns IS NOT NULL AND step.number >= 1
        )
        SELECT gpu, {NUMBER["wait.rollout"]}, start_ns, decoded_ns FROM generated
        UNION ALL
        SELECT gpu, {NUMBER["wait.reward"]}, decoded_ns, end_ns FROM generated
    """)
