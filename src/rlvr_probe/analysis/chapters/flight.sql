-- name: decode
-- turns with times of their own; one begins when its engine began it, where that is known; in a run
-- with a queue also those of trajectories that no batch has, because they were not done in the end
SELECT unit, coalesce(engine, process) AS engine, trajectory_id,
  turn.start_ns + coalesce((queue_s * 1e9)::BIGINT, 0) AS start_ns, turn.end_ns
FROM turn JOIN sample USING (trajectory_id)
WHERE own_times AND turn.start_ns IS NOT NULL AND turn.end_ns > turn.start_ns
UNION ALL
SELECT -1, process, NULL, start_ns, end_ns FROM engine_call
WHERE coalesce(samples, 1) = 1 AND end_ns > start_ns
  AND EXISTS (FROM sample_batch WHERE unit < 0)

-- name: rollout
-- a batch of which every trajectory has such a turn, or the run, where groups are generated for a
-- queue and 95 % have one: from the begin of its first turn to the end of its last one
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
