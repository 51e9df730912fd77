-- name: turns
SELECT turns AS value, hash(batch_id, grp) AS cluster, trajectory_id, number AS step, unit
FROM sample
JOIN (
  SELECT trajectory_id, count(*) AS turns FROM turn GROUP BY trajectory_id
) USING (trajectory_id)

-- name: turn_prompt
SELECT turn.prompt_tokens AS value, hash(batch_id, grp) AS cluster, trajectory_id, number AS step,
  unit
FROM turn JOIN sample USING (trajectory_id)

-- name: turn_response
SELECT turn.response_tokens AS value, hash(batch_id, grp) AS cluster, trajectory_id, number AS step,
  unit
FROM turn JOIN sample USING (trajectory_id)

-- name: observation
SELECT observation AS value, hash(batch_id, grp) AS cluster, trajectory_id, number AS step, unit
FROM (
  SELECT trajectory_id,
    turn.prompt_tokens - lag(turn.prompt_tokens + turn.response_tokens)
      OVER (PARTITION BY trajectory_id ORDER BY turn.turn) AS observation
  FROM turn
)
JOIN sample USING (trajectory_id) WHERE observation >= 0

-- name: tool_calls
SELECT coalesce(calls, 0) AS value, hash(batch_id, grp) AS cluster, trajectory_id, number AS step,
  unit
FROM sample SEMI JOIN turn USING (trajectory_id)
LEFT JOIN (
  SELECT trajectory_id, count(*) AS calls FROM tool_call GROUP BY trajectory_id
) USING (trajectory_id)
WHERE EXISTS (FROM tool_call)

-- name: tool_result
SELECT added_tokens AS value, hash(batch_id, grp) AS cluster, trajectory_id, number AS step, unit
FROM tool_call JOIN sample USING (trajectory_id)

-- name: several
SELECT count(*) > 0 FROM turn WHERE turn > 0

-- name: loss_share
SELECT sum(loss_tokens) FILTER (response_tokens IS NOT NULL)
  / nullif(sum(response_tokens) FILTER (loss_tokens IS NOT NULL), 0) FROM sample

-- name: every
-- Whether all trajectories are counted.
SELECT (SELECT count(*) FROM trajectory) = (SELECT count(*) FROM sample)

-- name: of_training
-- A join of all turns with all trajectories takes longer than all else here.
SEMI JOIN sample USING (trajectory_id)

-- name: sums
SELECT sum(prompt_tokens)::BIGINT, sum(response_tokens)::BIGINT, sum(cached_tokens)::BIGINT,
  sum(cached_tokens) / nullif(sum(prompt_tokens) FILTER (cached_tokens IS NOT NULL), 0)
FROM turn {only}

-- name: by_turn
SELECT turn.turn, count(*) AS count, avg(turn.prompt_tokens) AS prompt,
  avg(turn.response_tokens) AS response,
  sum(cached_tokens) / nullif(sum(turn.prompt_tokens) FILTER (cached_tokens IS NOT NULL), 0)
    AS cached_share
FROM turn JOIN kept_trajectory AS trajectory USING (trajectory_id) WHERE mode = 'train'
GROUP BY turn.turn ORDER BY turn.turn

-- name: by_step
SELECT number AS step, unit, count(*) AS turns, sum(turn.prompt_tokens)::BIGINT AS sent,
  sum(turn.response_tokens)::BIGINT AS generated, sum(cached_tokens)::BIGINT AS cached
FROM turn JOIN sample USING (trajectory_id) GROUP BY number, unit ORDER BY number, unit

-- name: histogram
SELECT value AS {name}, count(*) AS trajectories
FROM ({rows}) GROUP BY value ORDER BY value
