-- name: told
CREATE OR REPLACE TEMP VIEW ledger_recorded AS
SELECT process, step_id, name, coalesce(mode, 'train') AS mode, wait_on, start_ns, end_ns
FROM span WHERE step_id IS NOT NULL
UNION ALL
-- What had not ended when its process was last seen lasted until then.
FROM (
    SELECT process, step_id, name, 'train', NULL, open_span.start_ns,
           open_span.start_ns + (age_s * 1e9)::BIGINT
    FROM open_span JOIN process USING (process)
    JOIN step ON step.attempt = process.attempt AND step.number = open_span.step
    WHERE age_s IS NOT NULL AND open_span.name <> 'user'
    QUALIFY row_number() OVER (
        PARTITION BY process, open_span.id ORDER BY step.session DESC, step.life DESC) = 1
)

-- name: stage
CREATE OR REPLACE TEMP TABLE ledger_stage AS
SELECT row_number() OVER (ORDER BY told.process, told.start_ns, told.end_ns DESC) AS stage,
       told.process, told.step_id, told.name, mode, wait_on, told.start_ns, told.end_ns
FROM ledger_recorded told JOIN step USING (step_id)
WHERE list_contains($stages, told.name) AND step.number >= 1
  AND told.process IN (SELECT process FROM gpu_teller)

-- name: window
-- Of each process that records stages, from when to when it was in a step.
CREATE OR REPLACE TEMP TABLE ledger_window AS
SELECT told.process, told.step_id, any_value(step.attempt) AS attempt,
       any_value(step.session) AS session, any_value(step.life) AS life,
       any_value(step.number) AS number, min(told.start_ns) AS start_ns,
       max(told.end_ns) AS end_ns, bool_or(told.name NOT IN ('step', $between)) AS told
FROM ledger_recorded told JOIN step USING (step_id)
WHERE step.number >= 1 AND told.process IN (SELECT process FROM gpu_teller)
GROUP BY told.process, told.step_id

-- name: called
-- What each rank did of a call; a table, as these joins are thought to be far larger than they are,
-- and what follows them would be planned for that: of thousands of ranks it would never end.
CREATE OR REPLACE TEMP TABLE ledger_called AS
SELECT gpu, span.process, span.worker_group, span.start_ns, span.end_ns,
       rpc.process AS caller,
       rpc.start_ns AS called_ns, rpc.end_ns AS result_ns, asked.waits
FROM span JOIN gpu_process USING (process)
LEFT JOIN rpc_rank ON rpc_rank.process = span.process AND rpc_rank.id = span.id
LEFT JOIN rpc USING (rpc_id)
LEFT JOIN span asked ON asked.process = rpc.process AND asked.id = rpc.id
WHERE span.side = 'worker'

-- name: placed
-- The same with who called; a table, since DuckDB makes all pairs of what is joined by ``USING``
-- below an ``ASOF`` join.
CREATE OR REPLACE TEMP TABLE ledger_placed AS
-- A call that was not joined is placed by its own time.
SELECT done.gpu, done.process, worker_group, process.boot, done.start_ns, done.end_ns, called_ns,
       result_ns, waits, coalesce(caller, told.process) AS teller,
       coalesce(called_ns, done.start_ns) AS at_ns
FROM ledger_called done JOIN process ON process.process = done.process
LEFT JOIN (SELECT gpu, attempt, min(process) AS process FROM gpu_teller WHERE NOT own
           GROUP BY gpu, attempt) told
    ON told.gpu = done.gpu AND told.attempt = process.attempt

-- name: part
-- What each rank did of a call, on its GPUs, and the stage that the call was made in.
CREATE OR REPLACE TEMP TABLE ledger_part AS
SELECT placed.gpu, placed.process, worker_group, boot, placed.start_ns, placed.end_ns, called_ns,
       CASE WHEN waits THEN result_ns ELSE stage.end_ns END AS over_ns,
       CASE WHEN placed.at_ns < stage.end_ns THEN stage.stage END AS stage
FROM ledger_placed placed
ASOF LEFT JOIN ledger_stage stage
    ON placed.teller = stage.process AND placed.at_ns >= stage.start_ns

-- name: called_in
-- Calls whose stage is known.
FROM ledger_part WHERE stage IS NOT NULL

-- name: cluster
-- Calls of a stage that took place at the same time have one barrier: their last end.
CREATE OR REPLACE TEMP TABLE ledger_cluster AS
SELECT stage, island AS cluster, gpu, boot, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
       min(min(start_ns)) OVER (PARTITION BY stage, island) AS first_ns,
       max(max(end_ns)) OVER (PARTITION BY stage, island) AS last_ns,
       max(max(end_ns)) OVER (PARTITION BY stage, island, boot) AS near_ns
FROM ({islands})
GROUP BY stage, island, gpu, boot

-- name: clock
-- How well the clock of another machine is known: no better than a call leaves room for.
CREATE OR REPLACE TEMP TABLE ledger_clock AS
SELECT part.boot, min((over_ns - called_ns) - (part.end_ns - part.start_ns)) AS width_ns
FROM ledger_part part JOIN ledger_stage stage USING (stage) JOIN process caller
    ON caller.process = stage.process
WHERE part.boot <> caller.boot AND called_ns IS NOT NULL
GROUP BY part.boot

-- name: barrier_end
CASE WHEN last_ns - near_ns > (SELECT 2 * coalesce(max(width_ns), 0) FROM ledger_clock)
     THEN last_ns ELSE near_ns END

-- name: stages
INSERT INTO paint
SELECT told.gpu, CASE
    WHEN stage.mode = 'eval' THEN $eval
    WHEN stage.name = 'wait' THEN CASE
        WHEN wait_on LIKE '%reward%' THEN $wait_reward
        WHEN wait_on LIKE '%queue%' OR wait_on LIKE '%rollout%' THEN $wait_rollout END
    WHEN gpu.part = 'rollout' AND stage.name = 'weight_sync' THEN {work}
    WHEN stage.stage IN (SELECT stage FROM ledger_part)
      OR stage.stage IN (SELECT stage FROM ledger_rollout WHERE NOT own)
        THEN CASE WHEN stage.name IN ('eval', 'checkpoint') THEN {work}
                  ELSE $dispatch END
    WHEN stage.stage IN (SELECT stage FROM ledger_rollout) THEN $wait_rollout
    WHEN gpu.part = 'rollout' THEN coalesce({wait}, {work})
    ELSE {work} END, stage.start_ns, stage.end_ns
FROM ledger_stage stage JOIN gpu_teller told USING (process) JOIN gpu USING (gpu)

-- name: calls
INSERT INTO paint
SELECT part.gpu, {call}, part.start_ns, part.end_ns
FROM ledger_part part LEFT JOIN ledger_stage stage USING (stage)

-- name: waits
INSERT INTO paint
SELECT gpu, {wait}, cluster.start_ns, {barrier_end}
FROM ledger_cluster cluster JOIN ledger_stage stage USING (stage)
WHERE {wait} IS NOT NULL

-- name: missed
-- GPUs that a stage did not call wait for those that it called; what ranks of a called group did
-- that recorded nothing is unknown.
INSERT INTO paint
WITH called AS (
    SELECT DISTINCT stage, cluster, first_ns, last_ns, worker_group
    FROM ledger_cluster JOIN ledger_part USING (stage, gpu)
), member AS (
    SELECT DISTINCT worker_group, gpu FROM ledger_part
), missed AS (
    SELECT called.stage, cluster, first_ns, last_ns, told.gpu,
           bool_or(member.gpu IS NOT NULL) AS belongs
    FROM called JOIN ledger_stage stage USING (stage)
    JOIN gpu_teller told USING (process)
    LEFT JOIN member ON member.worker_group = called.worker_group
        AND member.gpu = told.gpu
    GROUP BY called.stage, cluster, first_ns, last_ns, told.gpu
)
SELECT missed.gpu, CASE WHEN belongs THEN $unknown ELSE {wait} END,
       first_ns, last_ns
FROM missed JOIN ledger_stage stage USING (stage)
ANTI JOIN ledger_cluster here ON here.stage = missed.stage
    AND here.cluster = missed.cluster AND here.gpu = missed.gpu

-- name: between
-- Between two steps that follow one another everything has a name, but what goes on in a step of
-- which no stage was recorded is unknown.
INSERT INTO paint
WITH followed AS (
    SELECT *, lead(start_ns) OVER steps AS next_ns, lead(number) OVER steps AS next,
           lead(told) OVER steps AS next_told
    FROM ledger_window
    WINDOW steps AS (PARTITION BY process, session, life ORDER BY number)
)
SELECT gpu, $bubble, start_ns,
       CASE WHEN next = number + 1 AND next_told THEN greatest(end_ns, next_ns)
            ELSE end_ns END
FROM followed JOIN gpu_teller USING (process) WHERE followed.told

-- name: own_engine
-- An engine without a number is that of the process, or else a server.
CASE WHEN home.process IS NULL THEN -1 ELSE -2 - home.process END

-- name: engine_turn
-- Turns of trajectories, as calls of engines.
SELECT attempt, coalesce(engine, {own_engine}) AS engine, turn.batch_id, mode = 'eval' AS evaluates,
       turn.start_ns, turn.end_ns, trajectory_id, turn.response_tokens AS tokens
FROM turn JOIN trajectory USING (trajectory_id) JOIN process USING (process)
LEFT JOIN ledger_home home USING (process)
WHERE turn.start_ns IS NOT NULL

-- name: engine_call
-- Those of no batch.
SELECT attempt, coalesce(owner.engine, {own_engine}) AS engine, NULL::INTEGER AS batch_id,
       false AS evaluates, start_ns, end_ns, NULL::INTEGER AS trajectory_id, tokens
FROM (
    SELECT attempt, process, start_ns, end_ns, response_tokens AS tokens FROM engine_call
    UNION ALL
    SELECT attempt, process, open_span.start_ns, open_span.start_ns + (age_s * 1e9)::BIGINT, NULL
    FROM open_span JOIN process USING (process) WHERE name = 'turn' AND age_s IS NOT NULL
)
LEFT JOIN ledger_home home USING (process) LEFT JOIN engine_owner owner USING (attempt, process)

-- name: ledger_call
-- Calls of engines, as far as they are apart from one another, and the trajectory that ended last.
SELECT attempt, engine, batch_id, evaluates, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
       arg_max(trajectory_id, (end_ns, trajectory_id)) FILTER (end_ns IS NOT NULL) AS last,
       sum(tokens) AS tokens
FROM ({rows})
GROUP BY attempt, engine, batch_id, evaluates, {overlap}

-- name: engine_busy
-- When an engine had at least one sequence of a batch.
CREATE OR REPLACE TEMP TABLE ledger_busy AS
SELECT attempt, engine, batch_id, bool_and(evaluates) AS evaluates, min(start_ns) AS start_ns,
       max(end_ns) AS end_ns
FROM ({islands})
GROUP BY attempt, engine, batch_id, island

-- name: engine_batch
-- Of batches whose trajectories have times of their own: first start, last decoded, last ended.
CREATE OR REPLACE TEMP TABLE ledger_batch AS
WITH lived AS (
    SELECT batch_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
           arg_max(trajectory_id, (end_ns, trajectory_id)) FILTER (end_ns IS NOT NULL)
               AS told_last
    FROM trajectory WHERE own_times GROUP BY batch_id
), decoded AS (
    SELECT batch_id, max(end_ns) AS decoded_ns,
           arg_max(last, (end_ns, last)) FILTER (end_ns IS NOT NULL) AS decoded_last
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
-- A rank that asks a server waits for it.
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

-- name: engine_work
INSERT INTO paint
SELECT gpu, CASE WHEN evaluates THEN $eval ELSE $rollout END,
       start_ns, end_ns
FROM ledger_busy JOIN engine_gpu USING (attempt, engine)
UNION ALL
SELECT gpu, $rollout, start_ns, end_ns
FROM ledger_busy JOIN gpu_process ON engine = -2 - process

-- name: engine_waits
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
-- Groups in the queue over time, and when another one was started.
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

-- name: queue_data
-- A rank that fetches the data of a step waits for the last group that it takes.
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

-- name: queue_idle
INSERT INTO paint
WITH beside AS ({beside}), during AS (
    SELECT attempt, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM ledger_window GROUP BY attempt
)
SELECT gpu, $idle, start_ns, end_ns FROM beside JOIN during USING (attempt)
UNION ALL
-- What starts one trajectory after another never starts one while the queue is full.
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
