-- name: imbalance
SELECT max(value) / avg(value) - 1 AS value, unit AS cluster,
  arg_max(trajectory_id, (value, trajectory_id)) FILTER (value IS NOT NULL) AS trajectory_id
FROM ({rows}) GROUP BY unit HAVING count(*) > 1 AND avg(value) > 0

-- name: load
SELECT unit, {member} AS member, any_value(number) AS step, count(*) AS trajectories,
  sum(response_tokens)::BIGINT AS tokens, max(response_tokens) AS longest,
  arg_max(trajectory_id, (response_tokens, trajectory_id))
    FILTER (response_tokens IS NOT NULL) AS trajectory_id
FROM sample WHERE unit >= 0 AND {member} IS NOT NULL GROUP BY unit, {member}

-- name: tokens
SELECT unit, member, {column} AS value, trajectory_id FROM {name}_load

-- name: replica_time
SELECT unit, engine AS member, max(decode.end_ns) - any_value(rollout.start_ns) AS value,
  arg_max(trajectory_id, (decode.end_ns, trajectory_id))
    FILTER (decode.end_ns IS NOT NULL) AS trajectory_id
FROM decode JOIN rollout USING (unit) WHERE unit >= 0 GROUP BY unit, engine

-- name: stages
SELECT name AS what, unit, member, sum(ns) AS value FROM (
  SELECT name, step_id AS unit, span.process AS member, span.end_ns - span.start_ns AS ns
  FROM kept_span AS span JOIN process ON process.process = span.process
  WHERE step_id IS NOT NULL AND mode = 'train' AND process.rank IS NOT NULL
    AND name NOT IN ('wait', 'experience', 'rpc')
) GROUP BY name, unit, member

-- name: calls
SELECT method AS what, rpc_id AS unit, rank AS member,
  rpc_rank.end_ns - rpc_rank.start_ns AS value
FROM rpc_rank JOIN kept_rpc USING (rpc_id)

-- name: ranks
SELECT what, count(*) AS units, avg(share) AS mean,
  stddev_samp(share) / sqrt(count(*)) AS error, sum(lost_s) AS lost_s,
  list(slowest ORDER BY share DESC, slowest) AS slowest,
  arg_max(unit, (share, unit), 5) FILTER (share IS NOT NULL) AS worst
FROM (
  SELECT what, unit, max(value) / avg(value) - 1 AS share,
    arg_max(member, (value, member)) FILTER (value IS NOT NULL) AS slowest,
    (max(value) * count(*) - sum(value)) / 1e9 AS lost_s
  FROM ({rows}) GROUP BY what, unit HAVING count(*) > 1 AND avg(value) > 0
)
GROUP BY what ORDER BY lost_s DESC, what LIMIT 20

-- name: replicas
SELECT count(*) FROM replica_load

-- name: by_batch
SELECT unit AS batch_id, step, member AS replica, trajectories, tokens, longest
FROM replica_load WHERE unit % $every = 0 ORDER BY unit, member
