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

-- name: fetched
-- How long the trainer waited for the last group of each step, or for its data where what it waited
-- for is unknown: what follows the last group is fetching.
WITH arrived AS (
    SELECT step_id, max(scored_ns) AS last_ns FROM queue_group GROUP BY step_id
), fetched AS (
    SELECT step_id, start_ns, least(end_ns, greatest(start_ns, coalesce(last_ns, end_ns))) AS end_ns
    FROM kept_span LEFT JOIN arrived USING (step_id)
    WHERE name = 'data' AND mode IS DISTINCT FROM 'eval' AND step_id IS NOT NULL
      AND start_ns IS NOT NULL AND end_ns IS NOT NULL
)
SELECT step_id, max(end_ns - start_ns)::DOUBLE AS ns, min(start_ns) AS start_ns,
       max(end_ns) AS end_ns
FROM fetched GROUP BY step_id ORDER BY start_ns

-- name: paces
-- Of what each step took from the queue, or generated itself, how long a token took, ns, and the
-- share of turns in its trajectories.
SELECT step_id, median((turn.end_ns - turn.start_ns) / turn.response_tokens) AS ns,
       least(1, sum(turn.end_ns - turn.start_ns) / any_value(lived.ns)) AS share
FROM turn JOIN kept_trajectory USING (trajectory_id, batch_id) JOIN kept_batch USING (batch_id, step_id)
LEFT JOIN (
    SELECT step_id, sum(end_ns - start_ns) AS ns FROM kept_trajectory
    WHERE mode = 'train' AND own_times GROUP BY step_id
) AS lived USING (step_id)
WHERE queued = $beside AND (SELECT asynchronous FROM run) = $beside AND ($beside OR own_times)
  AND kept_batch.mode = 'train' AND turn.response_tokens > 0 AND step_id IS NOT NULL
GROUP BY step_id HAVING median((turn.end_ns - turn.start_ns) / turn.response_tokens) > 0
ORDER BY step_id

-- name: generated
-- Tokens of the run, and how fast they were generated while the queue was first filled.
WITH calls AS (
    SELECT start_ns, end_ns, response_tokens FROM turn
    UNION ALL SELECT start_ns, end_ns, response_tokens FROM engine_call
), first AS (
    SELECT sum(response_tokens::DOUBLE
               * greatest(0, least(end_ns, $until) - greatest(start_ns, $since))
               / (end_ns - start_ns)) / ($until - $since) AS tokens_per_ns,
           sum(greatest(0, least(end_ns, $until) - greatest(start_ns, $since))::DOUBLE)
           / ($until - $since) AS at_once
    FROM calls WHERE end_ns > start_ns AND start_ns < $until
), moving AS (
    SELECT coalesce(sum(ns), 0) AS ns FROM (
        SELECT max(end_ns - start_ns) AS ns FROM kept_span
        WHERE name = 'weight_sync' AND mode IS DISTINCT FROM 'eval' GROUP BY step_id)
)
SELECT sum(response_tokens) AS tokens, any_value(f.tokens_per_ns) AS tokens_per_ns,
       any_value(m.ns) AS moving_ns, any_value(f.at_once) AS at_once,
       sum((end_ns - start_ns)::DOUBLE) / $wall AS usually_at_once
FROM calls, first AS f, moving AS m

-- name: ended
SELECT max(end_ns) FROM kept_step
