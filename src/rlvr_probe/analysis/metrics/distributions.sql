-- name: whole
SELECT count(value) AS count, avg(value) AS mean,
  CASE WHEN count(value) > 1 THEN stddev_pop(value) / nullif(avg(value), 0) END AS cv,
  min(value) AS min,
  quantile_cont(value, $quantiles) AS quantiles, max(value) AS max,
  arg_max(trajectory_id, (value, trajectory_id), 5) FILTER (value IS NOT NULL) AS longest
FROM ({rows})

-- name: groups
SELECT count(*) AS clusters, sum(members * members) AS members_squares,
  sum((total - $mean * members) ** 2) AS mean_squares,
  {sums}
FROM (
  SELECT cluster, count(*)::DOUBLE AS members, sum(value) AS total,
    {below}
  FROM ({rows}) WHERE value IS NOT NULL GROUP BY cluster
)

-- name: steps
SELECT step, unit, count, min, mean, quantiles[1] AS p50, quantiles[2] AS p90,
  quantiles[3] AS p99, max
FROM (
  SELECT step, unit, count(value) AS count, min(value) AS min, avg(value) AS mean,
    quantile_cont(value, [0.5, 0.9, 0.99]) AS quantiles, max(value) AS max
  FROM ({rows}) WHERE value IS NOT NULL GROUP BY step, unit
)
ORDER BY step, unit

-- name: ends
SELECT quantile_cont(value, $ends) FROM ({rows})
