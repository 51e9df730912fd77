-- name: group
-- Every group that was generated for a queue, when it got there, and the step that took it.
CREATE OR REPLACE TEMP TABLE queue_group AS
WITH made AS (
    SELECT batch.batch_id, batch.step_id, any_value(process.attempt) AS attempt,
           min(trajectory.start_ns) AS start_ns,
           greatest(max(trajectory.end_ns), coalesce(any_value(scored.end_ns), 0)) AS scored_ns
    FROM batch JOIN trajectory USING (batch_id) JOIN process USING (process)
    LEFT JOIN (SELECT batch_id, max(end_ns) AS end_ns FROM reward_call GROUP BY batch_id) scored
        USING (batch_id)
    WHERE queued AND own_times
    GROUP BY batch.batch_id, batch.step_id
)
-- A queue gives what came first: what came before something that was trained on was taken then.
SELECT *, coalesce(step_id, first_value(step_id IGNORE NULLS) OVER (
              PARTITION BY attempt ORDER BY scored_ns, batch_id
              ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)) AS taken_by
FROM made

-- name: length
-- Groups in the queue over time, and when another one was begun.
CREATE OR REPLACE TEMP TABLE queue_length AS
WITH begun AS (
    SELECT step_id, min(start_ns) AS start_ns FROM ledger_window GROUP BY step_id
), event AS (
    SELECT attempt, scored_ns AS at_ns, 1 AS more, 0 AS starts FROM queue_group
    UNION ALL
    SELECT attempt, greatest(scored_ns, begun.start_ns), -1, 0
    FROM queue_group JOIN begun ON taken_by = begun.step_id
    UNION ALL
    SELECT attempt, start_ns, 0, 1 FROM queue_group
), summed AS (
    SELECT attempt, at_ns, sum(more) AS more, sum(starts) AS starts FROM event
    GROUP BY attempt, at_ns
)
SELECT attempt, at_ns, lead(at_ns) OVER events AS until_ns, starts > 0 AS starts,
       sum(more) OVER events AS groups
FROM summed WINDOW events AS (PARTITION BY attempt ORDER BY at_ns)

-- name: data
-- Whoever fetches the data of a step waits for the last group that it takes.
INSERT INTO paint
SELECT told.gpu, $queue, stage.start_ns, least(stage.end_ns, last_ns)
FROM ledger_stage stage JOIN gpu_teller told USING (process)
JOIN (SELECT step_id, max(scored_ns) AS last_ns FROM queue_group GROUP BY step_id)
    USING (step_id)
WHERE stage.name = 'data'

-- name: beside
-- GPUs of engines on which nothing is trained.
SELECT DISTINCT gpu, attempt, engine FROM engine_gpu
WHERE gpu NOT IN (SELECT gpu FROM gpu_teller)

-- name: idle
INSERT INTO paint
WITH beside AS ({beside}), during AS (
    SELECT attempt, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM ledger_window GROUP BY attempt
)
SELECT gpu, $idle, start_ns, end_ns FROM beside JOIN during USING (attempt)
UNION ALL
-- What begins a trajectory after another never begins one while the queue is full.
SELECT gpu, $full, at_ns, until_ns
FROM beside JOIN queue_length queue USING (attempt)
JOIN (SELECT attempt, max(groups) AS most FROM queue_length WHERE starts GROUP BY attempt)
    USING (attempt)
WHERE groups > most
UNION ALL
SELECT DISTINCT beside.gpu, $weight_sync, stage.start_ns, stage.end_ns
FROM beside JOIN gpu_teller told USING (attempt)
JOIN ledger_stage stage USING (process)
WHERE stage.name = 'weight_sync'

-- name: decoding
INSERT INTO paint
WITH beside AS ({beside})
SELECT beside.gpu, $wait_rollout, trajectory.start_ns, trajectory.end_ns
FROM trajectory JOIN process USING (process) JOIN beside
    ON beside.attempt = process.attempt AND beside.engine = coalesce(trajectory.engine, -1)
WHERE own_times
