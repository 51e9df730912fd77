-- name: engine
-- One without a number is that of the process, or else a server.
coalesce(engine, CASE WHEN home.process IS NULL THEN -1 ELSE -2 - home.process END)

-- name: thrown
-- Tokens of what was thrown away, by batch, engine and why.
CREATE OR REPLACE TEMP TABLE ledger_thrown AS
WITH one AS (
    SELECT trajectory_id, one.batch_id, one.process, engine, response_tokens,
           CASE WHEN queued AND one.step_id IS NULL THEN 'discarded.stale'
                WHEN NOT passed.kept THEN 'discarded.filtered'
                WHEN NOT passed.used THEN 'discarded.surplus'
                ELSE 'discarded.truncated' END AS why
    FROM trajectory one JOIN batch USING (batch_id)
    LEFT JOIN (SELECT * FROM prompt_group WHERE NOT kept OR NOT used) passed
        USING (batch_id, grp)
    WHERE one.mode = 'train' AND (
        (queued AND one.step_id IS NULL) OR passed.batch_id IS NOT NULL
        OR (truncated AND loss_tokens = 0))
), made AS (
    SELECT trajectory_id, sum(response_tokens) AS tokens FROM turn
    WHERE trajectory_id IN (SELECT trajectory_id FROM one) GROUP BY trajectory_id
)
SELECT batch_id, attempt, {engine} AS engine, why,
       sum(coalesce(made.tokens, response_tokens)) AS tokens
FROM one LEFT JOIN made USING (trajectory_id) JOIN process USING (process)
LEFT JOIN ledger_home home USING (process)
GROUP BY ALL

-- name: total
-- Tokens of all trajectories, by batch and engine.
CREATE OR REPLACE TEMP TABLE ledger_total AS
SELECT batch_id, attempt, engine, sum(tokens) AS tokens FROM ledger_call
WHERE batch_id IS NOT NULL GROUP BY batch_id, attempt, engine
UNION ALL
SELECT batch_id, attempt, {engine} AS engine, sum(response_tokens)
FROM trajectory JOIN process USING (process) LEFT JOIN ledger_home home USING (process)
WHERE batch_id NOT IN (SELECT batch_id FROM ledger_call WHERE batch_id IS NOT NULL)
  AND (batch_id IN (SELECT batch_id FROM ledger_thrown)
       OR batch_id IN (SELECT batch_id FROM queue_group))
GROUP BY ALL

-- name: discarded
INSERT INTO ledger_move
WITH busy AS (
    SELECT batch_id, attempt, engine, sum(end_ns - start_ns) AS ns FROM ledger_busy
    WHERE batch_id IS NOT NULL GROUP BY batch_id, attempt, engine
    UNION ALL
    -- A call that tells a sum belongs to the rollout that it lies in.
    SELECT one.batch_id, one.attempt, one.engine, sum(busy.end_ns - busy.start_ns)
    FROM (SELECT DISTINCT batch_id, attempt, engine FROM ledger_thrown) one
    JOIN batch USING (batch_id)
    JOIN ledger_stage stage ON stage.step_id = batch.step_id AND stage.name = 'rollout'
        AND stage.mode = 'train' AND one.engine = -2 - stage.process
    JOIN ledger_busy busy ON busy.attempt = one.attempt AND busy.engine = one.engine
        AND busy.batch_id IS NULL AND busy.start_ns >= stage.start_ns
        AND busy.start_ns < stage.end_ns
    GROUP BY one.batch_id, one.attempt, one.engine
), home AS (
    SELECT attempt, engine, gpu FROM engine_gpu
    UNION ALL
    SELECT attempt, -2 - process, gpu FROM gpu_process JOIN process USING (process)
)
SELECT batch.step_id, home.gpu, 'work.rollout', why,
       sum(thrown.tokens / total.tokens * busy.ns)::BIGINT
FROM ledger_thrown thrown JOIN ledger_total total USING (batch_id, attempt, engine)
JOIN busy USING (batch_id, attempt, engine) JOIN home USING (attempt, engine)
JOIN batch USING (batch_id)
WHERE NOT queued AND total.tokens > 0
GROUP BY batch.step_id, home.gpu, why

-- name: queued
-- Behind a queue it is the share of the whole run: its groups are generated at the same time.
INSERT INTO ledger_move
WITH held AS (
    SELECT engine_gpu.gpu, attempt, sum(end_ns - start_ns) AS ns
    FROM segment JOIN engine_gpu USING (gpu) WHERE category = 'work.rollout'
    GROUP BY engine_gpu.gpu, attempt
), whole AS (
    SELECT attempt, sum(tokens) AS tokens FROM ledger_total
    WHERE batch_id IN (SELECT batch_id FROM queue_group) GROUP BY attempt
), share AS (
    SELECT thrown.attempt, taken_by, why, sum(thrown.tokens) / any_value(whole.tokens) AS share
    FROM ledger_thrown thrown JOIN queue_group USING (batch_id)
    JOIN whole ON whole.attempt = thrown.attempt
    WHERE whole.tokens > 0 AND taken_by IS NOT NULL
    GROUP BY thrown.attempt, taken_by, why
)
SELECT taken_by, gpu, 'work.rollout', why, (share * ns)::BIGINT
FROM share JOIN held USING (attempt)

-- name: count
SELECT count(*) FROM ledger_thrown
