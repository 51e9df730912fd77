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
