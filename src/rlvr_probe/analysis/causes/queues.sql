-- name: fetched
-- How long the trainer waited for the data of each step.
SELECT step_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
       max(end_ns - start_ns)::DOUBLE AS ns
FROM kept_span
WHERE name = 'data' AND mode IS DISTINCT FROM 'eval' AND step_id IS NOT NULL
  AND start_ns IS NOT NULL AND end_ns IS NOT NULL
GROUP BY step_id ORDER BY start_ns

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

-- name: asynchronous
SELECT asynchronous FROM run

-- name: ended
SELECT max(end_ns) FROM kept_step
