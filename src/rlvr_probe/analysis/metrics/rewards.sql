-- name: calls
SELECT function AS name, unit, number AS step,
  (verification.end_ns - verification.start_ns) / 1e9 AS seconds, verification.start_ns,
  verification.end_ns, 1 AS samples, trajectory_id, verification.process
FROM verification JOIN sample_batch USING (batch_id)
UNION ALL
SELECT function, unit, number, took_s, reward_call.start_ns, reward_call.end_ns, samples, NULL,
  reward_call.process
FROM reward_call JOIN sample_batch USING (batch_id)

-- name: ranks
SELECT unit, any_value(step) AS step, process, sum(seconds) AS seconds, max(samples) AS samples
FROM (
  SELECT unit, any_value(number) AS step, process, function, sum(took_s) AS seconds,
    sum(samples) AS samples
  FROM reward_call JOIN sample_batch USING (batch_id) WHERE unit >= 0 AND took_s IS NOT NULL
  GROUP BY unit, process, function
)
GROUP BY unit, process

-- name: skew
SELECT max(seconds) / nullif(min(seconds), 0) AS value, unit AS cluster, unit AS trajectory_id
FROM ({ranks}) GROUP BY unit HAVING count(*) > 1

-- name: trajectory_share
SELECT (SELECT sum(seconds) FROM function_time) / nullif(sum((end_ns - start_ns) / 1e9), 0)
FROM sample
WHERE own_times AND EXISTS (FROM verification) AND NOT EXISTS (FROM reward_call)

-- name: wait_share
SELECT 1 - sum(mean) / nullif(sum(most), 0) FROM (
  SELECT avg(seconds) AS mean, max(seconds) AS most FROM ({ranks})
  GROUP BY unit HAVING count(*) > 1
)

-- name: ranks_count
SELECT count(*) FROM ({ranks})

-- name: by_process
SELECT unit AS batch_id, step, process, seconds, samples FROM ({ranks})
WHERE unit % $every = 0 ORDER BY unit, process

-- name: values
SELECT function, count(*) FILTER (isfinite(value)) AS finite,
  count(*) FILTER (NOT isfinite(value)) AS not_finite,
  count(*) FILTER (value IS NULL) AS missing,
  min(trajectory_id, 20) FILTER (isfinite(value)) AS finite_of,
  min(trajectory_id, 20) FILTER (NOT isfinite(value)) AS not_finite_of,
  min(trajectory_id, 20) FILTER (value IS NULL) AS missing_of
FROM reward SEMI JOIN sample_batch USING (batch_id) GROUP BY function ORDER BY function

-- name: work
WITH waited AS (
  SELECT function, avg(end_ns - start_ns) / 1e9 AS mean, count(*) AS asked,
    avg(start_ns) / 1e9 AS start_s
  FROM verification GROUP BY function
), ran AS (
  SELECT function, process, calls, took_s, mean_start_ns FROM reward_work
  UNION ALL
  SELECT function, process, 1, (end_ns - start_ns) / 1e9, start_ns FROM span
  WHERE name = 'reward_fn' AND function IN (SELECT function FROM waited)
), clocks AS (
  SELECT function, count(DISTINCT boot) AS clocks FROM (
    SELECT function, process FROM ran UNION SELECT function, process FROM verification
  ) JOIN process USING (process) GROUP BY function
)
SELECT function, sum(took_s) AS work,
  1 - sum(took_s) / sum(calls) / nullif(any_value(mean), 0) AS queue_share,
  CASE WHEN sum(calls) = any_value(asked) AND any_value(clocks) = 1
    THEN (sum(mean_start_ns::DOUBLE * calls) / sum(calls) / 1e9 - any_value(start_s))
      / nullif(any_value(mean), 0) END AS before_share,
  arg_max(process, (took_s, process), 5) FILTER (took_s IS NOT NULL) AS processes
FROM ran LEFT JOIN waited USING (function) LEFT JOIN clocks USING (function)
GROUP BY function
UNION ALL
SELECT DISTINCT function, NULL, 0, NULL, NULL FROM reward_call
WHERE function NOT IN (SELECT function FROM waited WHERE function IS NOT NULL)
  AND function NOT IN (SELECT function FROM ran WHERE function IS NOT NULL)

-- name: attempts
SELECT function, sum(if(attempts > 1, attempts - 1, 0)) AS retries, sum(timeouts) AS timeouts,
  list(trajectory_id) FILTER (timeouts > 0) AS late
FROM verification SEMI JOIN sample_batch USING (batch_id)
WHERE attempts IS NOT NULL GROUP BY function

-- name: errors
SELECT function, sum(errors)::BIGINT AS errors FROM (
  SELECT function, count(error) AS errors FROM kept_span WHERE name = 'reward_fn'
  GROUP BY function
  UNION ALL
  SELECT function, errors FROM reward_work
) GROUP BY function
