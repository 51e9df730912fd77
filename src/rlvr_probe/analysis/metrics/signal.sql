-- name: batches
-- Whole batches of training and of evaluation, each with its third of the steps that have any.
SELECT mode, batch_id, number AS step, coalesce(third, -1) AS third
FROM (
  SELECT mode, batch_id, step_id, number FROM sample_batch
  UNION ALL
  SELECT mode, batch_id, step_id, number FROM kept_batch JOIN step USING (step_id)
  WHERE mode = 'eval'
    AND (whole OR NOT EXISTS (FROM kept_batch WHERE mode = 'eval' AND whole))
)
LEFT JOIN (
  SELECT mode, step_id,
    3 * (row_number() OVER (PARTITION BY mode ORDER BY step_id) - 1)
      // count(*) OVER (PARTITION BY mode) AS third
  FROM (SELECT DISTINCT mode, step_id FROM kept_batch WHERE step_id IS NOT NULL)
) USING (mode, step_id)

-- name: group_reward
-- what one function gave the trajectories of one group of a whole batch, of training or evaluation
SELECT mode, step, third, given.* FROM (
  SELECT batch_id, grp, function, fn, min(trajectory_id) AS trajectory_id,
    coalesce(min(source), '(unknown)') AS source,
    count(*) AS trajectories, count(number) AS finite, count(value) - finite AS odd,
    trajectories - count(value) AS missing, sum(number) AS total, sum(number * number) AS squares,
    min(number) AS least, max(number) AS most, trajectories > 1 AND odd = 0 AS judged,
    judged AND (finite = 0 OR (missing = 0 AND least = most)) AS alike,
    arg_max(trajectory_id, (number, trajectory_id)) FILTER (number IS NOT NULL) AS best_id,
    min(trajectory_id) FILTER (number IS NULL AND value IS NOT NULL) AS odd_id,
    min(trajectory_id) FILTER (value IS NULL) AS missing_id
  FROM (SELECT *, CASE WHEN isfinite(value) THEN value END AS number FROM reward)
  JOIN (SELECT trajectory_id, grp, source FROM trajectory) USING (trajectory_id)
  GROUP BY batch_id, grp, function, fn
) AS given JOIN ({batches}) USING (batch_id)

-- name: moments
-- Of equal values the spread is 0, however their sums are rounded.
SELECT {by}, sum(trajectories)::BIGINT AS trajectories,
  sum(total) / nullif(sum(finite), 0) AS mean,
  sum(squares) / nullif(sum(finite), 0) - mean ** 2 AS variance,
  CASE WHEN min(least) = max(most) OR variance < 0 THEN 0 ELSE sqrt(variance) END AS std,
  count(*) FILTER (judged AND finite > 0) AS groups,
  count(*) FILTER (alike AND finite > 0) AS alike,
  sum(odd) / sum(trajectories) AS not_finite, sum(missing) / sum(trajectories) AS missing,
  min(trajectory_id, 20) FILTER (alike AND finite > 0) AS alike_of,
  arg_max(best_id, (most, best_id), 5) FILTER (most IS NOT NULL) AS best_of,
  min(odd_id, 20) FILTER (odd > 0) AS not_finite_of,
  min(missing_id, 20) FILTER (missing_id IS NOT NULL) AS missing_of
FROM group_reward WHERE mode = $mode

-- name: whole
{moments} GROUP BY GROUPING SETS ({sets}) ORDER BY {by}

-- name: by_step
SELECT step, function, trajectories, mean AS reward, std AS spread,
  alike / nullif(groups, 0) AS same_groups, not_finite, missing
FROM ({moments} GROUP BY ALL) ORDER BY step, function

-- name: untrained
-- Of groups, over all functions.
SELECT third, count(*) AS groups, count(*) FILTER (alike) AS alike,
  min(trajectory_id, 20) FILTER (alike) AS alike_of
FROM (
  SELECT third, bool_and(alike) AS alike, min(trajectory_id) AS trajectory_id
  FROM group_reward WHERE mode = $mode
  GROUP BY third, batch_id, grp HAVING bool_and(judged) AND sum(finite) > 0
)
GROUP BY GROUPING SETS ((), (third)) ORDER BY third

-- name: sourced
SELECT count(*) > 0 FROM trajectory WHERE source IS NOT NULL
