-- name: callers
SELECT DISTINCT process FROM span WHERE side = 'caller'
UNION
SELECT process FROM session WHERE facts->>'accelerators' IS NOT NULL

-- name: steppers
SELECT DISTINCT process FROM span WHERE name = 'step'
UNION
SELECT process FROM open_span WHERE name = 'step'

-- name: called
SELECT process, min(rank) FROM span WHERE side = 'worker' GROUP BY process ORDER BY process

-- name: accelerators
SELECT any_value(accelerators) FROM run

-- name: asynchronous
SELECT coalesce(any_value(asynchronous), false) FROM run

-- name: attempts
SELECT process, attempt FROM process

-- name: tellers
CREATE OR REPLACE TEMP TABLE gpu_teller AS
WITH ended AS (
  SELECT gpu, attempt, max(last_seen_ns) AS until_ns
  FROM gpu_process JOIN process USING (process) GROUP BY gpu, attempt
  HAVING bool_and(state = 'died')
)
SELECT told.gpu, told.process, attempt, own, until_ns
FROM ledger_told told JOIN process USING (process) LEFT JOIN ended USING (gpu, attempt)

-- name: numbered
SELECT DISTINCT attempt, engine
FROM trajectory JOIN process USING (process) WHERE engine IS NOT NULL ORDER BY attempt, engine

-- name: requested
SELECT count(*) > 0 FROM request

-- name: owners
WITH first AS (
  SELECT attempt, engine, min(turn.start_ns) AS start_ns,
    arg_min(turn.end_ns, (turn.start_ns, turn.end_ns)) AS end_ns
  FROM turn JOIN trajectory USING (trajectory_id) JOIN process USING (process)
  WHERE engine IS NOT NULL GROUP BY attempt, engine
)
SELECT attempt, engine, any_value(request.process)
FROM request JOIN first USING (attempt, start_ns, end_ns) GROUP BY attempt, engine
HAVING count(DISTINCT request.process) = 1 ORDER BY attempt, engine

-- name: serves
SELECT EXISTS (
  SELECT 1 FROM trajectory JOIN turn USING (trajectory_id) JOIN process USING (process)
  WHERE attempt = $attempt AND engine IS NULL AND NOT list_contains($owned::INTEGER[], process)
) OR EXISTS (
  SELECT 1 FROM engine_call
  WHERE attempt = $attempt AND NOT list_contains($owned::INTEGER[], process)
)

-- name: server
SELECT coalesce(bool_or(contains(engine, 'server')), false) FROM run

-- name: size
SELECT any_value(rollout_tp), any_value(asynchronous) FROM run

-- name: free
SELECT device, any_value(host), any_value(boot)
FROM device JOIN reading USING (device)
WHERE kind = 'gpu' AND value > 0 AND counter IN ('sm_active', 'utilization') GROUP BY device
ORDER BY device

-- name: workers
SELECT DISTINCT process FROM span WHERE side = 'worker'
