-- name: distribution
-- How values are distributed; NULL without any.
CASE WHEN count({value}) > 0 THEN struct_pack(
  mean := avg({value}), p50 := quantile_cont({value}, [0.5, 0.9, 0.99])[1],
  p90 := quantile_cont({value}, [0.5, 0.9, 0.99])[2],
  p99 := quantile_cont({value}, [0.5, 0.9, 0.99])[3], max := max({value})) END

-- name: lengths
-- Of the whole run, of each of its steps, and of evaluation.
WITH length AS (
  SELECT 'train' AS mode, step_id, prompt_tokens, response_tokens, truncated FROM sample
  UNION ALL
  SELECT mode, NULL, prompt_tokens, response_tokens, truncated FROM kept_trajectory
  WHERE mode = 'eval' AND step_id IS NOT NULL
)
SELECT mode, step_id, grouping(step_id) = 1 AS of_all, {prompt} AS prompt_tokens,
  {response} AS response_tokens, avg(truncated::INTEGER) AS truncated_share
FROM length GROUP BY GROUPING SETS ((mode), (mode, step_id))

-- name: turns
SELECT count(*) AS trajectories, (SELECT count(*) FROM sample) - count(*) AS unknown,
  sum(turns) AS turns, count(*) FILTER (turns > 1) AS several_turns,
  {spread} AS per_trajectory,
  CASE WHEN count(loss_tokens) = count(*) THEN (SELECT sum(loss_tokens) FROM sample) END
    AS loss_tokens
FROM (SELECT trajectory_id, count(*) AS turns FROM turn GROUP BY trajectory_id)
JOIN sample USING (trajectory_id)

-- name: tools
SELECT tool, count(*) AS calls, histogram(coalesce(status, 'unknown')) AS statuses,
  histogram(error) FILTER (error IS NOT NULL) AS errors, {spread} AS latency_s,
  sum(took_s) AS total_s
FROM tool_call SEMI JOIN sample_batch USING (batch_id)
GROUP BY tool ORDER BY calls DESC, tool NULLS FIRST

-- name: values
-- What functions gave, in the order in which they first did.
SELECT function, count(*) FILTER (isfinite(value)) AS "values",
  avg(value) FILTER (isfinite(value)) AS mean, count(*) FILTER (NOT isfinite(value)) AS not_finite,
  count(*) FILTER (value IS NULL) AS missing
FROM reward SEMI JOIN sample_batch USING (batch_id)
GROUP BY function ORDER BY min(trajectory_id), min(fn), function

-- name: calls
-- Those of single trajectories were waited for.
SELECT function, count(*) AS calls, sum(end_ns - start_ns) / 1e9 AS total_s,
  bool_or(waited) AS waited,
  sum(if(attempts > 1, attempts - 1, 0)) FILTER (attempts IS NOT NULL) AS retries,
  sum(coalesce(timeouts, 0)) FILTER (attempts IS NOT NULL) AS timeouts
FROM (
  SELECT batch_id, function, start_ns, end_ns, true AS waited, attempts, timeouts FROM verification
  UNION ALL
  SELECT batch_id, function, start_ns, end_ns, false, NULL, NULL FROM reward_call
)
SEMI JOIN sample_batch USING (batch_id)
GROUP BY function ORDER BY min(batch_id), min(start_ns), function

-- name: requests
SELECT count(*) AS requests, histogram(coalesce(finish, 'unknown')) AS finishes,
  sum(preemptions) AS preemptions,
  CASE WHEN count(preemptions) > 0 THEN count(*) FILTER (preemptions > 0) END AS preempted,
  sum(cached_tokens) FILTER (prompt_tokens IS NOT NULL)
    / nullif(sum(prompt_tokens) FILTER (cached_tokens IS NOT NULL), 0) AS cached_share,
  {queue_s} AS queue_s, {prefill_s} AS prefill_s, {decode_s} AS decode_s,
  sum(queue_s) AS queue_total, sum(prefill_s) AS prefill_total, sum(decode_s) AS decode_total
FROM request

-- name: staleness
-- Trainer steps that the oldest weights lacked which a trajectory saw.
SELECT count(*) AS trajectories, count(*) FILTER (lag > 0) AS stale, {spread} AS steps
FROM (SELECT number - 1 - policy_version_min AS lag FROM sample) WHERE lag IS NOT NULL
