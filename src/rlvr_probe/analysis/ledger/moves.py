"""Time that is called something else once it is known what came of it."""

from __future__ import annotations

from rlvr_probe.analysis.tables import Tables

__all__ = ["make_cells"]

_ANY = """
SELECT EXISTS (SELECT 1 FROM prompt_group WHERE NOT kept OR NOT used)
    OR EXISTS (SELECT 1 FROM trajectory WHERE truncated AND loss_tokens = 0)
    OR EXISTS (SELECT 1 FROM batch WHERE queued AND step_id IS NULL)
"""
"""Whether anything was thrown away."""

_GENERATED = """
CREATE OR REPLACE TEMP TABLE ledger_generated AS
WITH made AS (
    SELECT batch_id, step_id, mode, grp, trajectory.process, engine,
           truncated AND loss_tokens = 0 AS masked, turn.response_tokens AS tokens
    FROM turn JOIN trajectory USING (trajectory_id)
    UNION ALL
    SELECT batch_id, step_id, mode, grp, process, engine, truncated AND loss_tokens = 0,
           response_tokens
    FROM trajectory WHERE batch_id NOT IN
        (SELECT batch_id FROM ledger_call WHERE batch_id IS NOT NULL)
)
SELECT batch_id, step_id, mode, grp, attempt, coalesce(masked, false) AS masked,
       coalesce(engine, CASE WHEN home.process IS NULL THEN -1 ELSE -2 - home.process END)
           AS engine, sum(tokens) AS tokens
FROM made JOIN process USING (process) LEFT JOIN ledger_home home USING (process)
GROUP BY ALL
"""
"""Tokens that an engine generated for a group, of trajectories that the loss has or has not."""

_DISCARDED = """
INSERT INTO ledger_move
WITH told AS (
    SELECT one.*, CASE WHEN NOT kept THEN 'discarded.filtered'
                       WHEN NOT used THEN 'discarded.surplus'
                       WHEN masked THEN 'discarded.truncated' END AS why
    FROM ledger_generated one JOIN prompt_group USING (batch_id, grp)
    JOIN batch USING (batch_id)
    WHERE one.mode = 'train' AND NOT queued
), share AS (
    SELECT batch_id, attempt, engine, why,
           sum(tokens) / nullif(sum(sum(tokens)) OVER (PARTITION BY batch_id, attempt, engine), 0)
               AS share
    FROM told GROUP BY batch_id, attempt, engine, why
), busy AS (
    SELECT batch_id, attempt, engine, sum(end_ns - start_ns) AS ns FROM ledger_busy
    WHERE batch_id IS NOT NULL GROUP BY batch_id, attempt, engine
    UNION ALL
    -- A call that tells a sum belongs to the rollout that it lies in.
    SELECT batch_id, attempt, engine, sum(ns) FROM (
        SELECT DISTINCT one.batch_id, busy.attempt, busy.engine, busy.start_ns,
               busy.end_ns - busy.start_ns AS ns
        FROM (SELECT DISTINCT batch_id, attempt, engine, step_id FROM ledger_generated
              WHERE mode = 'train') one
        JOIN ledger_stage stage ON stage.step_id = one.step_id AND stage.name = 'rollout'
            AND stage.mode = 'train' AND one.engine = -2 - stage.process
        JOIN ledger_busy busy ON busy.attempt = one.attempt AND busy.engine = one.engine
            AND busy.batch_id IS NULL AND busy.start_ns >= stage.start_ns
            AND busy.start_ns < stage.end_ns)
    GROUP BY batch_id, attempt, engine
), home AS (
    SELECT attempt, engine, gpu FROM engine_gpu
    UNION ALL
    SELECT attempt, -2 - process, gpu FROM gpu_process JOIN process USING (process)
)
SELECT batch.step_id, home.gpu, 'work.rollout' AS was, why AS becomes,
       sum(share * busy.ns)::BIGINT AS ns
FROM share JOIN busy USING (batch_id, attempt, engine) JOIN home USING (attempt, engine)
JOIN batch USING (batch_id)
WHERE why IS NOT NULL GROUP BY batch.step_id, home.gpu, why
"""
"""Rollout for what was not trained on: the time that an engine was busy with a batch, times the
share of its tokens there."""

_QUEUED = """
INSERT INTO ledger_move
WITH held AS (
    SELECT engine_gpu.gpu, attempt, sum(end_ns - start_ns) AS ns
    FROM segment JOIN engine_gpu USING (gpu) WHERE category = 'work.rollout'
    GROUP BY engine_gpu.gpu, attempt
), told AS (
    SELECT made.attempt, made.taken_by,
           CASE WHEN made.step_id IS NULL THEN 'discarded.stale'
                WHEN masked THEN 'discarded.truncated' END AS why, tokens
    FROM queue_group made JOIN ledger_generated USING (batch_id)
), share AS (
    SELECT attempt, taken_by, why, sum(tokens) / sum(sum(tokens)) OVER (PARTITION BY attempt)
               AS share
    FROM told GROUP BY attempt, taken_by, why
)
SELECT taken_by, gpu, 'work.rollout', why, (share * ns)::BIGINT
FROM share JOIN held USING (attempt) WHERE why IS NOT NULL AND taken_by IS NOT NULL
"""
"""The same of a queue: over the whole run, as its groups are generated all at the same time."""

_PROBE = """
INSERT INTO ledger_move
SELECT step_id, gpu, 'bubble', 'overhead.probe',
       (least(1.0, own_s * 1e9 / nullif(last_seen_ns - process.start_ns, 0))
        * (here.end_ns - here.start_ns))::BIGINT
FROM gpu_teller JOIN process USING (process) JOIN ledger_window here USING (process)
WHERE own_s > 0
"""

_WAITED = """
INSERT INTO ledger_move
SELECT step_id, gpu, category, 'wait.update', ns FROM hidden_wait WHERE ns > 0
"""

_CELLS = """
CREATE OR REPLACE TEMP TABLE ledger AS
WITH cell AS (
    SELECT step_id, gpu, category, sum(end_ns - start_ns)::BIGINT AS ns
    FROM segment GROUP BY step_id, gpu, category
), wanted AS (
    SELECT step_id, gpu, was, becomes, sum(ns) AS ns FROM ledger_move
    GROUP BY step_id, gpu, was, becomes
), move AS (
    -- No more can be called something else than there is.
    SELECT wanted.step_id, wanted.gpu, was, becomes,
           greatest(0, least(wanted.ns, cell.ns - coalesce(sum(wanted.ns) OVER (
               PARTITION BY wanted.step_id, wanted.gpu, was ORDER BY becomes
               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)))::BIGINT AS ns
    FROM wanted JOIN cell ON cell.step_id = wanted.step_id AND cell.gpu = wanted.gpu
        AND cell.category = was
), every AS (
    SELECT step_id, gpu, category, ns FROM cell
    UNION ALL SELECT step_id, gpu, was, -ns FROM move
    UNION ALL SELECT step_id, gpu, becomes, ns FROM move
)
SELECT step_id, gpu,
       CASE WHEN superseded_by IS NOT NULL AND category <> 'unaccounted' THEN 'discarded.redone'
            ELSE category END AS category,
       sum(ns)::BIGINT AS ns
FROM every LEFT JOIN step USING (step_id)
GROUP BY ALL HAVING sum(ns) <> 0
"""


def make_cells(tables: Tables) -> None:
    """Make ``ledger`` from ``segment``: GPU time by step, GPU and category, ns."""
    sql = tables.sql
    sql.execute(
        "CREATE OR REPLACE TEMP TABLE ledger_move (step_id INTEGER, gpu INTEGER, was VARCHAR,"
        " becomes VARCHAR, ns BIGINT)"
    )
    if sql.execute(_ANY).fetchall() == [(True,)]:
        sql.execute(_GENERATED)
        sql.execute(_DISCARDED)
        sql.execute(_QUEUED)
    sql.execute(_PROBE)
    sql.execute(_WAITED)
    sql.execute(_CELLS)
