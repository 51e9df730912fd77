-- name: categories
-- GPU time of each finished step by category, s.
SELECT number, category, sum(ns)::DOUBLE / 1e9 AS gpu_s
FROM ledger JOIN kept_step USING (step_id) WHERE done AND number >= 1
GROUP BY ALL ORDER BY ALL

-- name: unpaired
-- Batches that were generated for a queue, and those of training whose lengths are missing.
SELECT (SELECT count(*) FROM kept_batch WHERE queued),
  (SELECT coalesce(sum(lost_batches), 0)::BIGINT FROM kept_step)

-- name: batches
-- Batches of training in their order: the step of each, and of its rows, in their order, lengths
-- and prompt.
SELECT number, list(prompt_tokens ORDER BY "row", trajectory_id) AS prompts,
  list(response_tokens ORDER BY "row", trajectory_id) AS responses,
  list(grp ORDER BY "row", trajectory_id) AS groups
FROM kept_batch AS batch JOIN kept_step USING (step_id)
LEFT JOIN (SELECT batch_id, trajectory_id, "row", grp, prompt_tokens, response_tokens FROM trajectory)
  USING (batch_id)
WHERE batch.mode = 'train' GROUP BY batch_id, number ORDER BY number, batch_id

-- name: verified
-- Steps of which it is known how long verification took.
SELECT DISTINCT number FROM kept_step JOIN (
  SELECT step_id FROM kept_span WHERE name IN ('reward', 'reward_fn')
  UNION ALL
  SELECT step_id FROM kept_batch SEMI JOIN reward_call USING (batch_id)
  UNION ALL
  SELECT step_id FROM kept_trajectory SEMI JOIN verification USING (trajectory_id)
) USING (step_id)

-- name: tools
-- Time of each step in which tools ran and nothing was generated, s.
WITH edges AS (
  SELECT step_id, call.start_ns AS time_ns, 1 AS tools, 0 AS turns
  FROM tool_call AS call JOIN kept_batch USING (batch_id) WHERE mode = 'train'
  UNION ALL
  SELECT step_id, call.end_ns, -1, 0
  FROM tool_call AS call JOIN kept_batch USING (batch_id) WHERE mode = 'train'
  UNION ALL
  SELECT step_id, turn.start_ns, 0, 1
  FROM turn JOIN kept_batch USING (batch_id) WHERE mode = 'train'
  UNION ALL
  SELECT step_id, turn.end_ns, 0, -1
  FROM turn JOIN kept_batch USING (batch_id) WHERE mode = 'train'
), moments AS (
  SELECT step_id, lead(time_ns) OVER line - time_ns AS ns, sum(sum(tools)) OVER line AS tools,
    sum(sum(turns)) OVER line AS turns
  FROM edges GROUP BY step_id, time_ns WINDOW line AS (PARTITION BY step_id ORDER BY time_ns)
)
SELECT number, sum(ns) / 1e9 AS seconds FROM moments JOIN kept_step USING (step_id)
WHERE tools > 0 AND turns = 0 GROUP BY number

-- name: last
-- From the start of the first trajectory of a step to the end of the last one, s, where each has a
-- time of its own.
SELECT number, (max(trajectory.end_ns) - min(trajectory.start_ns)) / 1e9 AS seconds
FROM kept_trajectory AS trajectory JOIN kept_step USING (step_id)
WHERE mode = 'train' GROUP BY number
HAVING bool_and(own_times AND trajectory.end_ns IS NOT NULL AND trajectory.start_ns IS NOT NULL)

-- name: profile
-- Mean number of requests in flight in each tenth of the rollout of a step.
SELECT number, (bin * 10 // bins)::INTEGER AS tenth, avg(active) AS active
FROM (SELECT unit, bin, sum(active) AS active FROM flight GROUP BY unit, bin)
JOIN rollout USING (unit) JOIN kept_batch ON batch_id = unit JOIN kept_step USING (step_id)
GROUP BY ALL ORDER BY ALL

-- name: speed
-- Seconds and generated tokens of each step by how many requests were in flight; tokens of a
-- request are spread evenly over its time.
WITH edges AS (
  SELECT unit, start_ns AS time_ns, 1 AS flying, tokens::DOUBLE / (end_ns - start_ns) AS pace
  FROM decode WHERE tokens IS NOT NULL
  UNION ALL
  SELECT unit, end_ns, -1, -tokens::DOUBLE / (end_ns - start_ns) FROM decode
  WHERE tokens IS NOT NULL
), moments AS (
  SELECT unit, lead(time_ns) OVER line - time_ns AS ns, sum(sum(flying)) OVER line AS flying,
    sum(sum(pace)) OVER line AS pace
  FROM edges GROUP BY unit, time_ns WINDOW line AS (PARTITION BY unit ORDER BY time_ns)
)
SELECT number, flying::INTEGER AS flying, sum(ns) / 1e9 AS seconds, sum(pace * ns) AS tokens
FROM moments SEMI JOIN rollout USING (unit)
JOIN kept_batch ON batch_id = unit JOIN kept_step USING (step_id)
WHERE flying > 0 GROUP BY ALL ORDER BY ALL
