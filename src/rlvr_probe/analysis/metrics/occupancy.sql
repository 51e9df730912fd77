-- name: decode
-- turns with times of their own; one starts when its engine started it, where that is known; in a
-- run with a queue also those of trajectories that no batch has, because they were never done
{of_batches}
UNION ALL
{of_none}

-- name: of_batches
SELECT unit, coalesce(engine, process) AS engine, trajectory_id,
  turn.start_ns + coalesce((queue_s * 1e9)::BIGINT, 0) AS start_ns, turn.end_ns,
  turn.response_tokens AS tokens
FROM turn JOIN sample USING (trajectory_id)
WHERE own_times AND turn.start_ns IS NOT NULL AND turn.end_ns > turn.start_ns

-- name: of_none
SELECT -1, process, NULL, start_ns, end_ns, response_tokens FROM engine_call
WHERE coalesce(samples, 1) = 1 AND end_ns > start_ns
  AND EXISTS (FROM sample_batch WHERE unit < 0)

-- name: rollout
-- a batch of which every trajectory has such a turn, or the run, where groups are generated for a
-- queue and 95 % have one: from the start of its first turn to the end of its last one
SELECT unit, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
  sum(end_ns - start_ns)::DOUBLE AS slot_ns, any_value(trajectories) AS trajectories,
  CASE WHEN unit < 0 THEN {run_bins} ELSE {bins} END AS bins
FROM decode
JOIN (SELECT unit, count(*) AS trajectories FROM sample GROUP BY unit) USING (unit)
GROUP BY unit
HAVING count(DISTINCT trajectory_id)
  >= CASE WHEN unit < 0 THEN 0.95 ELSE 1 END * any_value(trajectories)

-- name: flight
-- mean number of sequences in flight in each of the equal pieces of the time of a rollout, by
-- engine where the number of its slots is known (each_engine; else 0)
WITH turns AS (
  SELECT unit, {each_engine} AS engine, (decode.start_ns - begin_ns) * per_ns AS a,
    (decode.end_ns - begin_ns) * per_ns AS z
  FROM decode JOIN (
    SELECT unit, start_ns AS begin_ns, bins / (end_ns - start_ns) AS per_ns FROM rollout
  ) USING (unit)
), edges AS (
  SELECT unit, engine, floor(a)::INTEGER AS bin, 1 - a + floor(a) AS here,
    a - floor(a) AS later FROM turns
  UNION ALL
  SELECT unit, engine, floor(z)::INTEGER, z - floor(z) - 1, floor(z) - z FROM turns
), sums AS (
  SELECT unit, engine, bin, sum(here) AS here, sum(later) AS later
  FROM edges GROUP BY unit, engine, bin
), grid AS (
  SELECT unit, engine, unnest(range(any_value(bins)))::INTEGER AS bin
  FROM (SELECT DISTINCT unit, engine FROM sums) JOIN rollout USING (unit)
  GROUP BY unit, engine
)
SELECT unit, engine, bin,
  greatest(0, sum(coalesce(here, 0)) OVER line + coalesce(sum(coalesce(later, 0)) OVER (
    PARTITION BY unit, engine ORDER BY bin
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)) AS active
FROM grid LEFT JOIN sums USING (unit, engine, bin)
WINDOW line AS (PARTITION BY unit, engine ORDER BY bin)

-- name: beyond_slots
UPDATE flight SET active = least(active, $slots)

-- name: slot_time
-- Slot time beyond the slots was spent in the queue.
UPDATE rollout SET slot_ns = (
  SELECT sum(active) * (rollout.end_ns - rollout.start_ns) / rollout.bins
  FROM flight WHERE flight.unit = rollout.unit)

-- name: seen
SELECT (SELECT count(*) FROM rollout),
  (SELECT count(DISTINCT engine) FROM decode JOIN rollout USING (unit)),
  (SELECT max(active) FROM (SELECT sum(active) AS active FROM flight GROUP BY unit, bin))

-- name: views
SELECT view_name FROM duckdb_views() WHERE temporary

-- name: length_idle
SELECT 1 - sum(response_tokens) / (count(*) * max(response_tokens)) AS value, batch_id AS cluster,
  arg_max(trajectory_id, (response_tokens, trajectory_id))
    FILTER (response_tokens IS NOT NULL) AS trajectory_id
FROM sample WHERE unit >= 0 GROUP BY batch_id HAVING max(response_tokens) > 0

-- name: turn_s
SELECT took_s AS value, cluster, trajectory_id, number AS step, unit
FROM turn JOIN sample USING (trajectory_id) WHERE own_times OR turn.start_ns IS NULL

-- name: trajectory_s
SELECT sum(took_s) AS value, any_value(cluster) AS cluster, trajectory_id,
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
  quantile_cont(active, [0.1, 0.9])[1] / $total AS p10,
  quantile_cont(active, [0.1, 0.9])[2] / $total AS p90
FROM (SELECT unit, bin, sum(active) AS active FROM flight GROUP BY unit, bin)
JOIN rollout USING (unit)
GROUP BY bin, bins ORDER BY bin

-- name: queue_share
SELECT sum(queue_s) / nullif(sum((turn.end_ns - turn.start_ns) / 1e9), 0) AS share,
  arg_max(trajectory_id, (queue_s, trajectory_id), 20) FILTER (queue_s IS NOT NULL) AS longest
FROM turn WHERE queue_s IS NOT NULL AND turn.start_ns IS NOT NULL
