-- name: call
-- Calls of engines, as far as they are apart from one another, and the trajectory that ended last.
-- An engine without a number is that of the process, or else a server.
CREATE OR REPLACE TEMP TABLE ledger_call AS
WITH call AS (
    SELECT attempt, coalesce(engine, CASE WHEN home.process IS NULL THEN -1
                                          ELSE -2 - home.process END) AS engine,
           batch_id, mode = 'eval' AS evaluates, turn.start_ns, turn.end_ns, trajectory_id,
           turn.response_tokens AS tokens
    FROM turn JOIN trajectory USING (trajectory_id) JOIN process USING (process)
    LEFT JOIN ledger_home home USING (process)
    WHERE turn.start_ns IS NOT NULL
    UNION ALL
    SELECT attempt, coalesce(owner.engine, CASE WHEN home.process IS NULL THEN -1
                                                ELSE -2 - home.process END),
           NULL, false, start_ns, end_ns, NULL, response_tokens
    FROM engine_call LEFT JOIN ledger_home home USING (process)
    LEFT JOIN engine_owner owner USING (attempt, process)
    UNION ALL
    SELECT attempt, coalesce(owner.engine, CASE WHEN home.process IS NULL THEN -1
                                                ELSE -2 - home.process END),
           NULL, false, open_span.start_ns, open_span.start_ns + (age_s * 1e9)::BIGINT, NULL,
           NULL
    FROM open_span JOIN process USING (process) LEFT JOIN ledger_home home USING (process)
    LEFT JOIN engine_owner owner USING (attempt, process)
    WHERE name = 'turn' AND age_s IS NOT NULL
)
SELECT attempt, engine, batch_id, evaluates, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
       arg_max(trajectory_id, end_ns) AS last, sum(tokens) AS tokens
FROM call
GROUP BY attempt, engine, batch_id, evaluates, {overlap}

-- name: busy
-- When an engine had at least one sequence of a batch.
CREATE OR REPLACE TEMP TABLE ledger_busy AS
SELECT attempt, engine, batch_id, bool_and(evaluates) AS evaluates, min(start_ns) AS start_ns,
       max(end_ns) AS end_ns
FROM ({islands})
GROUP BY attempt, engine, batch_id, island

-- name: batch
-- Of batches whose trajectories have times of their own: first start, last decoded, last told.
CREATE OR REPLACE TEMP TABLE ledger_batch AS
WITH lived AS (
    SELECT batch_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
           arg_max(trajectory_id, end_ns) AS told_last
    FROM trajectory WHERE own_times GROUP BY batch_id
), decoded AS (
    SELECT batch_id, max(end_ns) AS decoded_ns, arg_max(last, end_ns) AS decoded_last
    FROM ledger_call WHERE batch_id IS NOT NULL GROUP BY batch_id
)
SELECT batch.batch_id, batch.step_id, mode, queued, start_ns, end_ns, decoded_ns, told_last,
       decoded_last
FROM batch JOIN lived USING (batch_id) LEFT JOIN decoded USING (batch_id)

-- name: rollout
-- Rollout stages of which it is known when each engine had work.
CREATE OR REPLACE TEMP TABLE ledger_rollout AS
SELECT DISTINCT stage.stage, false AS own
FROM ledger_stage stage JOIN ledger_batch batch USING (step_id, mode)
WHERE stage.name = 'rollout' AND decoded_ns IS NOT NULL
  AND stage.process IN (SELECT process FROM gpu_teller WHERE NOT own)
UNION
-- Whoever asks a server waits for it.
SELECT stage.stage, true FROM ledger_stage stage
WHERE stage.name = 'rollout' AND NOT EXISTS (SELECT 1 FROM ledger_home)
  AND stage.process IN (SELECT process FROM gpu_teller WHERE own)
UNION
SELECT DISTINCT stage.stage, true
FROM ledger_stage stage JOIN ledger_home home USING (process)
JOIN ledger_busy busy ON busy.engine = -2 - home.process AND busy.start_ns < stage.end_ns
    AND busy.end_ns > stage.start_ns
WHERE stage.name = 'rollout'

-- name: home
CREATE OR REPLACE TEMP TABLE ledger_home AS
SELECT DISTINCT process FROM gpu_teller
WHERE own AND NOT (SELECT coalesce(bool_or(contains(engine, 'server')), false) FROM run)

-- name: work
INSERT INTO paint
SELECT gpu, CASE WHEN evaluates THEN $eval ELSE $rollout END,
       start_ns, end_ns
FROM ledger_busy JOIN engine_gpu USING (attempt, engine)
UNION ALL
SELECT gpu, $rollout, start_ns, end_ns
FROM ledger_busy JOIN gpu_process ON engine = -2 - process

-- name: waiting
INSERT INTO paint
WITH generated AS (
    SELECT gpu, batch.start_ns, decoded_ns, batch.end_ns
    FROM ledger_batch batch JOIN step USING (step_id)
    JOIN gpu_teller told ON told.attempt = step.attempt AND NOT told.own
    WHERE mode = 'train' AND NOT queued AND decoded_ns IS NOT NULL AND step.number >= 1
)
SELECT gpu, $wait_rollout, start_ns, decoded_ns FROM generated
UNION ALL
SELECT gpu, $wait_reward, decoded_ns, end_ns FROM generated
