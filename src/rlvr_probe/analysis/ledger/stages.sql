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
-- Of each process that tells of stages, from when to when it was at a step.
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
-- What is known to have been called in a stage.
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
-- GPUs that a stage did not call wait for those that it called; of ranks of a group that was
-- called and that told nothing, nobody knows.
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
-- Between two steps that follow one another there is nothing that has no name, but in one of
-- which no stage was recorded nobody knows.
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
