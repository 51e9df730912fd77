-- name: dispatches
-- Calls that their callers wait for, each with its slowest rank.
SELECT rpc.rpc_id, any_value(rpc.step_id) AS step_id, any_value(rpc.method) AS method,
  any_value(rpc.end_ns - rpc.start_ns) / 1e9 AS seconds,
  max(rpc_rank.end_ns - rpc_rank.start_ns) / 1e9 AS slowest_s,
  if(seconds < slowest_s, 0, seconds - slowest_s) AS dispatch,
  arg_max(rpc_rank.process, (rpc_rank.end_ns - rpc_rank.start_ns, rpc_rank.process))
    FILTER (rpc_rank.end_ns - rpc_rank.start_ns IS NOT NULL) AS process
FROM kept_rpc AS rpc JOIN rpc_rank USING (rpc_id)
LEFT JOIN span ON span.process = rpc.process AND span.id = rpc.id
WHERE coalesce(waits, true)
GROUP BY rpc.rpc_id

-- name: weight_sync
SELECT max(seconds) AS value, step_id AS cluster, step_id AS trajectory_id,
  any_value(number) AS step, step_id AS unit
FROM (
  SELECT step_id, process, sum(end_ns - start_ns) / 1e9 AS seconds
  FROM kept_span
  WHERE name = 'weight_sync' AND step_id IS NOT NULL AND mode IS DISTINCT FROM 'eval'
  GROUP BY step_id, process
)
JOIN step USING (step_id) WHERE done GROUP BY step_id

-- name: dispatch
SELECT sum(dispatch) AS value, step_id AS cluster, step_id AS trajectory_id,
  any_value(number) AS step, step_id AS unit
FROM ({dispatches}) JOIN step USING (step_id)
WHERE done AND dispatch IS NOT NULL GROUP BY step_id

-- name: synced_steps
SELECT sum(step_end_ns - step_start_ns) / 1e9 AS seconds,
  list(step_id) AS steps
FROM kept_step AS step WHERE done AND step_id IN (
  SELECT step_id FROM kept_span WHERE name = 'weight_sync' AND mode IS DISTINCT FROM 'eval')

-- name: calls
SELECT method, count(*) AS calls, sum(seconds) AS time, sum(dispatch) AS dispatch,
  sum(dispatch) / nullif(sum(seconds) FILTER (dispatch IS NOT NULL), 0) AS dispatch_share,
  avg(dispatch) AS dispatch_mean,
  quantile_cont(dispatch, 0.5) AS dispatch_p50,
  quantile_cont(dispatch, 0.99) AS dispatch_p99, max(dispatch) AS dispatch_max,
  arg_max(step_id, (dispatch, step_id), 5) FILTER (dispatch IS NOT NULL) AS steps,
  arg_max(process, (slowest_s, process), 5) FILTER (slowest_s IS NOT NULL) AS slowest,
  count(*) FILTER (seconds < slowest_s) AS odd
FROM ({dispatches})
GROUP BY method ORDER BY time DESC, method LIMIT 50

-- name: calls_by_step
SELECT number AS step, method, count(*) AS calls, sum(seconds) AS seconds, sum(dispatch) AS dispatch
FROM ({dispatches}) LEFT JOIN step USING (step_id)
GROUP BY number, method ORDER BY number, method
