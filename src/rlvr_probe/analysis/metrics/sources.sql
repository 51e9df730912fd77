-- name: sourced
-- Trajectories, where any of them says which source it is of.
SELECT *, coalesce(source, '(unknown)') AS name FROM sample
WHERE EXISTS (FROM sample WHERE source IS NOT NULL)

-- name: lengths
SELECT name AS source, count(*) AS count, avg(prompt_tokens) AS prompt,
  avg(response_tokens) AS mean, quantile_cont(response_tokens, [0.5, 0.9, 0.99])[1] AS p50,
  quantile_cont(response_tokens, [0.5, 0.9, 0.99])[2] AS p90,
  quantile_cont(response_tokens, [0.5, 0.9, 0.99])[3] AS p99,
  max(response_tokens) AS max, avg(truncated::INTEGER) AS truncated,
  arg_max(trajectory_id, (response_tokens, trajectory_id), 5)
    FILTER (response_tokens IS NOT NULL) AS ids
FROM ({sourced}) GROUP BY name ORDER BY count DESC, name LIMIT 50

-- name: timed
-- Of calls with seconds, for every source.
SELECT name AS source, count(*) AS count, sum(seconds) AS time, avg(seconds) AS mean,
  quantile_cont(seconds, [0.5, 0.99])[1] AS p50, quantile_cont(seconds, [0.5, 0.99])[2] AS p99, max(seconds) AS max,
  arg_max(trajectory_id, (seconds, trajectory_id), 5) FILTER (seconds IS NOT NULL) AS ids

-- name: rewards
{timed}, coalesce(function, '(unknown)') AS function
FROM (SELECT *, (end_ns - start_ns) / 1e9 AS seconds FROM verification)
JOIN (SELECT trajectory_id, name FROM ({sourced})) USING (trajectory_id)
GROUP BY name, function ORDER BY time DESC, source, function LIMIT 50

-- name: tools
{timed}, coalesce(tool, '(unknown)') AS tool
FROM (SELECT *, took_s AS seconds FROM tool_call)
JOIN (SELECT trajectory_id, name FROM ({sourced})) USING (trajectory_id)
GROUP BY name, tool ORDER BY time DESC, source, tool LIMIT 50
