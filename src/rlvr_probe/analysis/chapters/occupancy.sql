-- name: length_idle
SELECT 1 - sum(response_tokens) / (count(*) * max(response_tokens)) AS value, batch_id AS cluster,
  arg_max(trajectory_id, (response_tokens, trajectory_id))
    FILTER (response_tokens IS NOT NULL) AS trajectory_id
FROM sample WHERE unit >= 0 GROUP BY batch_id HAVING max(response_tokens) > 0

-- name: turn_s
SELECT took_s AS value, hash(batch_id, grp) AS cluster, trajectory_id, number AS step, unit
FROM turn JOIN sample USING (trajectory_id) WHERE own_times OR turn.start_ns IS NULL

-- name: trajectory_s
SELECT sum(took_s) AS value, hash(any_value(batch_id), any_value(grp)) AS cluster, trajectory_id,
  any_value(number) AS step, any_value(unit) AS unit
FROM turn JOIN sample USING (trajectory_id) WHERE own_times OR turn.start_ns IS NULL
GROUP BY trajectory_id

-- name: bounds
WITH calls AS (
  SELECT unit, process, turn.start_ns, turn.end_ns, count(*) AS sequences,
    sum(turn.response_tokens) / nullif(max(turn.response_tokens), 0) AS least
  FROM turn JOIN sample USING (trajectory_id)
  WHERE NOT own_times AND turn.start_ns IS NOT NULL
  GROUP BY unit, process, turn.start_ns, turn.end_ns
), ranks AS (
  SELECT unit, process, max(sequences) AS sequences,
    sum((end_ns - start_ns) * least) AS least, sum((end_ns - start_ns) * sequences) AS most,
    min(start_ns) AS start_ns, max(end_ns) AS end_ns
  FROM calls GROUP BY unit, process
)
SELECT sum(least) / sum(slots) AS least, sum(most) / sum(slots) AS most
FROM (
  SELECT coalesce($slots, max(sequences) OVER ())::DOUBLE
    * (max(end_ns) OVER (PARTITION BY unit) - min(start_ns) OVER (PARTITION BY unit))
    AS slots, least, most
  FROM ranks
)

-- name: several_turns
SELECT count(*) > 0 FROM turn WHERE turn > 0

-- name: by_lengths
WITH batches AS (
  SELECT batch_id, sum(response_tokens)::DOUBLE AS tokens,
    count(*)::DOUBLE * max(response_tokens) AS room
  FROM sample WHERE unit >= 0 GROUP BY batch_id HAVING max(response_tokens) > 0
), whole AS (
  SELECT sum(tokens) / sum(room) AS share, count(*) AS batches, sum(room) AS room
  FROM batches
)
SELECT share, any_value(whole.batches) AS batches, any_value(whole.room) AS room,
  sum((tokens - share * batches.room) ** 2) AS squares,
  list(batch_id ORDER BY tokens / batches.room, batch_id) AS emptiest
FROM whole, batches GROUP BY share

-- name: length_idle_by_batch
SELECT batch_id, any_value(number) AS step,
  1 - sum(response_tokens) / (count(*) * max(response_tokens)) AS length_idle
FROM sample WHERE unit >= 0 GROUP BY batch_id HAVING max(response_tokens) > 0
ORDER BY batch_id

-- name: peak
SELECT max(active) FROM flight

-- name: units
SELECT count(DISTINCT unit) FROM sample

-- name: by_batch
SELECT unit, any_value(step.number) AS step,
  any_value(rollout.end_ns - rollout.start_ns) / 1e9 AS seconds,
  any_value(slot_ns) / 1e9 AS slot_seconds, any_value(rollout.trajectories) AS trajectories,
  any_value(slot_ns / (rollout.end_ns - rollout.start_ns)) / $total AS mean,
  count(*) FILTER (active < 0.1 * $total) / count(*) AS under_10,
  count(*) FILTER (active < 0.25 * $total) / count(*) AS under_25,
  count(*) FILTER (active < 0.5 * $total) / count(*) AS under_50
FROM (SELECT unit, bin, sum(active) AS active FROM flight GROUP BY unit, bin)
JOIN rollout USING (unit)
LEFT JOIN batch ON batch_id = unit LEFT JOIN step USING (step_id)
GROUP BY unit ORDER BY unit

-- name: profile
SELECT (bin + 0.5) / bins AS time, avg(active) / $total AS mean,
  quantile_cont(active, 0.1) / $total AS p10, quantile_cont(active, 0.9) / $total AS p90
FROM (SELECT unit, bin, sum(active) AS active FROM flight GROUP BY unit, bin)
JOIN rollout USING (unit)
GROUP BY bin, bins ORDER BY bin

-- name: queue_share
SELECT sum(queue_s) / nullif(sum((turn.end_ns - turn.start_ns) / 1e9), 0) AS share,
  arg_max(trajectory_id, (queue_s, trajectory_id), 20) FILTER (queue_s IS NOT NULL) AS longest
FROM turn WHERE queue_s IS NOT NULL AND turn.start_ns IS NOT NULL
