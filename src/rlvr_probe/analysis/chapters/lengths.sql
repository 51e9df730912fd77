-- name: prompt
SELECT prompt_tokens AS value, hash(batch_id, grp) AS cluster, trajectory_id FROM sample

-- name: unique_prompt
SELECT max(prompt_tokens) AS value, hash(batch_id, grp) AS cluster,
  min(trajectory_id) AS trajectory_id, any_value(number) AS step, any_value(unit) AS unit
FROM sample GROUP BY batch_id, grp

-- name: response
SELECT response_tokens AS value, hash(batch_id, grp) AS cluster, trajectory_id FROM sample

-- name: loss
SELECT loss_tokens AS value, hash(batch_id, grp) AS cluster, trajectory_id FROM sample

-- name: context
SELECT context_tokens AS value, hash(batch_id, grp) AS cluster, trajectory_id FROM sample

-- name: group_max_over_mean
SELECT max(response_tokens) / avg(response_tokens) AS value, hash(batch_id, grp) AS cluster,
  arg_max(trajectory_id, (response_tokens, trajectory_id))
    FILTER (response_tokens IS NOT NULL) AS trajectory_id
FROM sample GROUP BY batch_id, grp HAVING max(response_tokens) > 0

-- name: cap
SELECT max_response_tokens,
  (SELECT count(DISTINCT facts->>'max_response_tokens') FROM session) > 1 AS several
FROM run

-- name: at_cap
SELECT count(*) AS count, count(*) FILTER (response_tokens >= $cap) AS at_cap,
  count(*) FILTER (response_tokens = (SELECT max(response_tokens) FROM sample))
    AS at_longest,
  count(truncated) AS told, count(*) FILTER (truncated) AS truncated,
  min(trajectory_id, 20) FILTER (response_tokens >= $cap) AS capped
FROM sample

-- name: tail
SELECT count(*) AS count, count(*) FILTER ($cap IS NULL OR response_tokens < $cap) AS known,
  sum(ln(response_tokens / $above)) AS logs,
  arg_max(trajectory_id, (response_tokens, trajectory_id), 20)
    FILTER (response_tokens IS NOT NULL) AS longest
FROM sample WHERE response_tokens > $above

-- name: blocks
SELECT hash(batch_id, grp) % 64 AS block, count(*)::DOUBLE AS groups, sum(n) AS trajectories,
  sum(n * n) AS squared_sizes, sum(total) AS total, sum(total * total / n) AS between,
  sum(squares) AS squares
FROM (
  SELECT batch_id, grp, count(*)::DOUBLE AS n, sum(response_tokens)::DOUBLE AS total,
    sum(response_tokens::DOUBLE ** 2) AS squares
  FROM sample GROUP BY batch_id, grp
)
GROUP BY block

-- name: sizes
SELECT trajectories, count(*) AS groups FROM (
  SELECT count(*) AS trajectories FROM sample GROUP BY batch_id, grp
) GROUP BY trajectories ORDER BY trajectories

-- name: by_step
SELECT step_id, any_value(number) AS step, unit,
  any_value(workload_step) AS workload_step, count(*) AS trajectories,
  count(DISTINCT (batch_id, grp)) AS groups, sum(prompt_tokens) AS prompt_tokens,
  sum(response_tokens) AS tokens, avg(response_tokens) AS mean,
  min(response_tokens) AS min, quantile_cont(response_tokens, 0.5) AS p50,
  quantile_cont(response_tokens, 0.9) AS p90, quantile_cont(response_tokens, 0.99) AS p99,
  max(response_tokens) AS max,
  CASE WHEN $cap IS NOT NULL
    THEN count(*) FILTER (response_tokens >= $cap) / count(*) END AS at_cap
FROM sample GROUP BY step_id, unit ORDER BY step_id, unit
