-- name: whole
WITH quantity AS NOT MATERIALIZED ({rows})
SELECT count(value) AS count, avg(value) AS mean,
  CASE WHEN count(value) > 1 THEN stddev_pop(value) / nullif(avg(value), 0) END AS cv,
  min(value) AS min, {of_values} AS quantiles, max(value) AS max,
  (SELECT list(trajectory_id ORDER BY value DESC, trajectory_id DESC) FROM (
    SELECT value, trajectory_id FROM quantity WHERE value IS NOT NULL
    ORDER BY value DESC, trajectory_id DESC LIMIT 5)) AS longest
FROM quantity

-- name: ends
WITH quantity AS NOT MATERIALIZED ({rows})
SELECT count(value) AS count, {of_values} AS quantiles FROM quantity

-- name: held
quantile_cont(value, $quantiles)

-- name: of_counts
(SELECT list(value ORDER BY quantile) FROM ({quantiles}))

-- name: counted
SELECT true AS every, value, count(*) AS times FROM quantity WHERE value IS NOT NULL GROUP BY value

-- name: groups
SELECT count(*) AS clusters, sum(members * members) AS members_squares,
  sum((total - $mean * members) ** 2) AS mean_squares,
  {sums}
FROM (
  SELECT cluster, count(*)::DOUBLE AS members, sum(value) AS total,
    {below}
  FROM ({rows}) WHERE value IS NOT NULL GROUP BY cluster
)

-- name: spread_by_step
SELECT step, unit, count, min, mean, quantiles[1] AS p50, quantiles[2] AS p90,
  quantiles[3] AS p99, max
FROM (
  SELECT step, unit, count(value) AS count, min(value) AS min, avg(value) AS mean,
    max(value) AS max
  FROM ({rows}) WHERE value IS NOT NULL GROUP BY step, unit
) AS spread JOIN (
  SELECT step AS of_step, unit AS of_unit, list(value ORDER BY quantile) AS quantiles FROM ({quantiles})
  GROUP BY step, unit
) ON step IS NOT DISTINCT FROM of_step AND unit IS NOT DISTINCT FROM of_unit
ORDER BY step, unit

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

-- name: values
SELECT name, seconds AS value FROM ({rows})

-- name: by_name
SELECT name, count(*) AS calls, sum(samples)::BIGINT AS samples, sum(seconds) AS time,
  sum(seconds) / sum(sum(seconds)) OVER () AS share,
  sum(seconds) / nullif(sum(samples), 0) AS per_trajectory, avg(seconds) AS mean,
  any_value(quantiles) AS quantiles, min(seconds) AS min, max(seconds) AS max,
  arg_max(trajectory_id, (seconds, trajectory_id), 20) FILTER (seconds IS NOT NULL) AS longest,
  arg_max(process, (seconds, process), 5) FILTER (seconds IS NOT NULL) AS processes
FROM ({rows}) LEFT JOIN (
  SELECT name AS of_name, list(value ORDER BY quantile) AS quantiles FROM ({quantiles}) GROUP BY name
) ON name IS NOT DISTINCT FROM of_name
WHERE seconds IS NOT NULL
GROUP BY name ORDER BY time DESC, name

-- name: by_step
SELECT step, name AS {by}, calls, seconds, longest
FROM {steps} ORDER BY step, name
