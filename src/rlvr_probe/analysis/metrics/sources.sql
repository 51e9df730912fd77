-- name: told
SELECT count(source) FROM sample

-- name: lengths
SELECT coalesce(source, '(unknown)') AS source, count(*) AS count, avg(prompt_tokens) AS prompt,
  avg(response_tokens) AS mean, quantile_cont(response_tokens, [0.5, 0.9, 0.99])[1] AS p50,
  quantile_cont(response_tokens, [0.5, 0.9, 0.99])[2] AS p90,
  quantile_cont(response_tokens, [0.5, 0.9, 0.99])[3] AS p99,
  max(response_tokens) AS max, avg(truncated::INTEGER) AS truncated,
  arg_max(trajectory_id, (response_tokens, trajectory_id), 5)
    FILTER (response_tokens IS NOT NULL) AS ids
FROM sample GROUP BY ALL ORDER BY count DESC, source LIMIT 50

-- name: sourced_reward
-- Verifications, each with its seconds and the source of its trajectory
SELECT coalesce(source, '(unknown)') AS source, coalesce(function, '(unknown)') AS function,
  (verification.end_ns - verification.start_ns) / 1e9 AS value, trajectory_id
FROM verification JOIN sample USING (trajectory_id, batch_id)

-- name: sourced_tool
-- Tool calls, each with its seconds and the source of its trajectory
SELECT coalesce(source, '(unknown)') AS source, coalesce(tool, '(unknown)') AS tool,
  took_s AS value, trajectory_id
FROM tool_call JOIN sample USING (trajectory_id, batch_id)

-- name: timed
SELECT source, {what}, count(*) AS count, sum(value) AS time, avg(value) AS mean,
  any_value(quantiles)[1] AS p50, any_value(quantiles)[2] AS p99, max(value) AS max,
  arg_max(trajectory_id, (value, trajectory_id), 5) FILTER (value IS NOT NULL) AS ids
FROM {calls} LEFT JOIN (
  SELECT source AS of_source, {what} AS of_what, list(value ORDER BY quantile) AS quantiles
  FROM ({quantiles}) GROUP BY ALL
) ON source = of_source AND {what} = of_what
GROUP BY source, {what} ORDER BY time DESC, source, {what} LIMIT 50
