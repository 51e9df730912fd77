-- name: probe
INSERT INTO ledger_move
SELECT step_id, gpu, 'bubble', 'overhead.probe',
       (least(1.0, own_s * 1e9 / nullif(last_seen_ns - process.start_ns, 0))
        * (here.end_ns - here.start_ns))::BIGINT
FROM gpu_teller JOIN process USING (process) JOIN ledger_window here USING (process)
WHERE own_s > 0

-- name: waited
INSERT INTO ledger_move
SELECT step_id, gpu, category, 'wait.update', ns FROM hidden_wait WHERE ns > 0

-- name: cells
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

-- name: moves
CREATE OR REPLACE TEMP TABLE ledger_move (
    step_id INTEGER, gpu INTEGER, was VARCHAR, becomes VARCHAR, ns BIGINT)
