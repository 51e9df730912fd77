-- name: moved
-- What each step took to move weights and to write a checkpoint: its fastest rank, so that a slow
-- rank is not taken for slow weights.
WITH moved AS (
    SELECT step_id, CASE WHEN stage IN ('save_checkpoint', 'checkpoint') THEN 'checkpoint'
                         ELSE 'weight_sync' END AS what, min(ns) AS ns
    FROM cause_work
    WHERE stage IN ('weight_sync', 'update_weights', 'save_checkpoint', 'checkpoint')
    GROUP BY ALL
), spans AS (
    SELECT step_id, name AS what, min(end_ns - start_ns) AS ns
    FROM kept_span
    WHERE name IN ('weight_sync', 'checkpoint') AND mode IS DISTINCT FROM 'eval'
      AND step_id IS NOT NULL
      AND name NOT IN (SELECT what FROM moved)
    GROUP BY ALL
)
SELECT step_id, what, ns FROM (FROM moved UNION ALL FROM spans)
WHERE step_id IS NOT NULL AND ns IS NOT NULL ORDER BY step_id

-- name: left
-- Wall time of each step, had weights moved in the usual time, ns.
WITH moved AS (
    SELECT step_id, min(end_ns - start_ns) AS ns FROM kept_span
    WHERE name = 'weight_sync' AND mode IS DISTINCT FROM 'eval' AND step_id IS NOT NULL
    GROUP BY step_id
)
SELECT step_id, greatest(ns - $usual, 0)::DOUBLE AS ns FROM moved ORDER BY step_id

-- name: asynchronous
SELECT asynchronous FROM run
