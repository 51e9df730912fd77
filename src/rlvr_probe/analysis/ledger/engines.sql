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
