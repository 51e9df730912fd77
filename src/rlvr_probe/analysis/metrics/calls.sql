-- name: step_times
-- Of every step and name: calls.
SELECT step, name, count(*) AS calls, sum(seconds) AS seconds, max(seconds) AS longest,
  sum(end_ns - start_ns) / 1e9 AS placed
FROM ({rows}) WHERE seconds IS NOT NULL
GROUP BY step, name

-- name: timed
FROM ({rows}) WHERE seconds IS NOT NULL

-- name: busy
-- Of every name: how long any of its calls was open in each batch, and the sum of their times.
SELECT name, busy, placed
FROM (SELECT name, sum(placed) AS placed FROM {steps} GROUP BY name)
JOIN (SELECT name AS open, sum(ns) / 1e9 AS busy FROM ({covered}) GROUP BY name)
  ON name IS NOT DISTINCT FROM open

-- name: by_name
SELECT name, count(*) AS calls, sum(samples)::BIGINT AS samples, sum(seconds) AS time,
  sum(seconds) / sum(sum(seconds)) OVER () AS share,
  sum(seconds) / nullif(sum(samples), 0) AS per_trajectory, avg(seconds) AS mean,
  quantile_cont(seconds, [0.5, 0.9, 0.99]) AS quantiles, min(seconds) AS min,
  max(seconds) AS max,
  arg_max(trajectory_id, (seconds, trajectory_id), 20) FILTER (seconds IS NOT NULL) AS longest,
  arg_max(process, (seconds, process), 5) FILTER (seconds IS NOT NULL) AS processes
FROM ({rows}) WHERE seconds IS NOT NULL
GROUP BY name ORDER BY time DESC, name

-- name: by_step
SELECT step, name AS {by}, calls, seconds, longest
FROM {steps} ORDER BY step, name
