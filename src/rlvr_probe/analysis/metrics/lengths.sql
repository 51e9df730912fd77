-- name: sample_group
-- counted trajectories of one prompt together: how many there are, and their lengths
SELECT batch_id, grp, cluster, any_value(step_id) AS step_id, any_value(number) AS number,
  any_value(unit) AS unit, count(*) AS trajectories, min(trajectory_id) AS trajectory_id,
  max(prompt_tokens) AS prompt_tokens, sum(response_tokens) AS tokens,
  sum(response_tokens::DOUBLE ** 2) AS squares, max(response_tokens) AS longest,
  max(response_tokens) / avg(response_tokens) AS max_over_mean,
  arg_max(trajectory_id, (response_tokens, trajectory_id))
    FILTER (response_tokens IS NOT NULL) AS longest_id
FROM sample GROUP BY batch_id, grp, cluster

-- name: prompt
SELECT prompt_tokens AS value, cluster, trajectory_id FROM sample

-- name: unique_prompt
SELECT prompt_tokens AS value, cluster, trajectory_id, number AS step, unit FROM sample_group

-- name: response
SELECT response_tokens AS value, cluster, trajectory_id FROM sample

-- name: loss
SELECT loss_tokens AS value, cluster, trajectory_id FROM sample

-- name: context
SELECT context_tokens AS value, cluster, trajectory_id FROM sample

-- name: group_max_over_mean
SELECT max_over_mean AS value, cluster, longest_id AS trajectory_id FROM sample_group
WHERE longest > 0

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
FROM (SELECT *, trajectories::DOUBLE AS n, tokens::DOUBLE AS total FROM sample_group)
GROUP BY block

-- name: sizes
SELECT trajectories, count(*) AS groups FROM sample_group
GROUP BY trajectories ORDER BY trajectories

-- name: by_step
SELECT step_id, any_value(number) AS step, unit,
  any_value(workload_step) AS workload_step, count(*) AS trajectories,
  (SELECT count(*) FROM sample_group AS its
    WHERE its.unit = sample.unit AND its.step_id IS NOT DISTINCT FROM sample.step_id) AS groups,
  sum(prompt_tokens) AS prompt_tokens,
  sum(response_tokens) AS tokens, avg(response_tokens) AS mean,
  min(response_tokens) AS min, quantile_cont(response_tokens, [0.5, 0.9, 0.99])[1] AS p50,
  quantile_cont(response_tokens, [0.5, 0.9, 0.99])[2] AS p90,
  quantile_cont(response_tokens, [0.5, 0.9, 0.99])[3] AS p99,
  max(response_tokens) AS max,
  CASE WHEN $cap IS NOT NULL
    THEN count(*) FILTER (response_tokens >= $cap) / count(*) END AS at_cap
FROM sample GROUP BY step_id, unit ORDER BY step_id, unit

-- name: turns
SELECT turns AS value, cluster, trajectory_id, number AS step, unit
FROM sample JOIN (SELECT trajectory_id, count(*) AS turns FROM turn GROUP BY trajectory_id)
  USING (trajectory_id)

-- name: turn_prompt
SELECT turn.prompt_tokens AS value, cluster, trajectory_id, number AS step, unit
FROM turn JOIN sample USING (trajectory_id)

-- name: turn_response
SELECT turn.response_tokens AS value, cluster, trajectory_id, number AS step, unit
FROM turn JOIN sample USING (trajectory_id)

-- name: observation
SELECT observation AS value, cluster, trajectory_id, number AS step, unit
FROM (
  SELECT trajectory_id,
    turn.prompt_tokens - lag(turn.prompt_tokens + turn.response_tokens)
      OVER (PARTITION BY trajectory_id ORDER BY turn.turn) AS observation
  FROM turn
)
JOIN sample USING (trajectory_id) WHERE observation >= 0

-- name: tool_calls
SELECT coalesce(calls, 0) AS value, cluster, trajectory_id, number AS step, unit
FROM sample SEMI JOIN turn USING (trajectory_id)
LEFT JOIN (SELECT trajectory_id, count(*) AS calls FROM tool_call GROUP BY trajectory_id)
  USING (trajectory_id)
WHERE EXISTS (FROM tool_call)

-- name: tool_result
SELECT added_tokens AS value, cluster, trajectory_id, number AS step, unit
FROM tool_call JOIN sample USING (trajectory_id)

-- name: several
SELECT count(*) > 0 FROM turn WHERE turn > 0

-- name: loss_share
SELECT sum(loss_tokens) FILTER (response_tokens IS NOT NULL)
  / nullif(sum(response_tokens) FILTER (loss_tokens IS NOT NULL), 0) FROM sample

-- name: turn_sums
SELECT sum(prompt_tokens)::BIGINT AS sent, sum(response_tokens)::BIGINT AS generated,
  sum(cached_tokens)::BIGINT AS cached,
  sum(cached_tokens) / nullif(sum(prompt_tokens) FILTER (cached_tokens IS NOT NULL), 0)
    AS cached_share
FROM turn SEMI JOIN sample_batch USING (batch_id)

-- name: by_turn
SELECT turn.turn, count(*) AS count, avg(turn.prompt_tokens) AS prompt,
  avg(turn.response_tokens) AS response,
  sum(cached_tokens) / nullif(sum(turn.prompt_tokens) FILTER (cached_tokens IS NOT NULL), 0)
    AS cached_share
FROM turn JOIN kept_batch USING (batch_id) WHERE mode = 'train'
GROUP BY turn.turn ORDER BY turn.turn

-- name: turns_by_step
SELECT number AS step, unit, count(*) AS turns, sum(turn.prompt_tokens)::BIGINT AS sent,
  sum(turn.response_tokens)::BIGINT AS generated, sum(cached_tokens)::BIGINT AS cached
FROM turn JOIN sample_batch USING (batch_id) GROUP BY number, unit ORDER BY number, unit

-- name: histogram_of
SELECT value AS {name}, count(*) AS trajectories
FROM ({rows}) GROUP BY value ORDER BY value

-- name: filtered_response
SELECT response_tokens AS value, cluster, trajectory_id
FROM sample JOIN prompt_group USING (batch_id, grp) WHERE {condition}

-- name: filter_shares
SELECT count(coalesce(kept, used)) AS groups, count(*) FILTER (kept) AS kept,
  count(*) FILTER (used) AS used,
  count(*) FILTER (kept) / nullif(count(kept), 0) AS kept_share,
  count(*) FILTER (used) / nullif(count(used), 0) AS used_share,
  sum(tokens) FILTER (NOT used) / nullif(sum(tokens) FILTER (used IS NOT NULL), 0)
    AS unused_tokens
FROM prompt_group JOIN (SELECT batch_id, grp, tokens FROM sample_group) USING (batch_id, grp)
WHERE kept IS NOT NULL OR used IS NOT NULL

-- name: filter_by_step
SELECT number AS step, count(DISTINCT batch_id) AS batches, count(*) AS groups,
  count(*) FILTER (kept) AS kept, count(*) FILTER (used) AS used
FROM prompt_group JOIN sample_batch USING (batch_id) GROUP BY number ORDER BY number

-- name: sourced
-- Lengths with their source; of a run without any, of all.
SELECT prompt_tokens, response_tokens, coalesce(source, (
  SELECT CASE WHEN count(source) > 0 THEN '(unknown)' ELSE '(all)' END FROM sample)) AS source
FROM sample

-- name: histogram
-- Classes of length, four to a factor of two, by their least length.
SELECT CASE WHEN tokens > 0 THEN ceil(2 ** (floor(4 * log2(tokens)) / 4)) ELSE 0 END::BIGINT
  AS tokens, source, sum(prompts)::BIGINT AS prompts, sum(responses)::BIGINT AS responses
FROM (
  SELECT prompt_tokens AS tokens, source, count(*) AS prompts, 0 AS responses
  FROM ({sourced}) GROUP BY ALL
  UNION ALL
  SELECT response_tokens, source, 0, count(*) FROM ({sourced}) GROUP BY ALL
)
WHERE tokens IS NOT NULL GROUP BY 1, source ORDER BY 1, source

-- name: counted
SELECT source, 'prompt' AS part, prompt_tokens AS value, count(prompt_tokens) AS times
FROM ({sourced}) GROUP BY ALL
UNION ALL
SELECT source, 'response', response_tokens, count(response_tokens) FROM ({sourced}) GROUP BY ALL

-- name: quantiles
SELECT quantile, source, any_value(value) FILTER (part = 'prompt') AS prompt,
  any_value(value) FILTER (part = 'response') AS response
FROM ({of_parts}) GROUP BY quantile, source ORDER BY source, quantile

-- name: by_prompt
SELECT ceil(2 ** (floor(4 * log2(prompt_tokens)) / 4))::BIGINT AS prompt_tokens,
  count(*) AS trajectories, quantile_cont(response_tokens, [0.1, 0.5, 0.9])[1] AS p10,
  quantile_cont(response_tokens, [0.1, 0.5, 0.9])[2] AS p50,
  quantile_cont(response_tokens, [0.1, 0.5, 0.9])[3] AS p90
FROM sample WHERE prompt_tokens > 0 GROUP BY 1 ORDER BY 1

-- name: step_time
SELECT tokens, step_id, (step_end_ns - step_start_ns) / 1e9 AS step, rollout, update_actor
FROM (
  SELECT step_id, sum(prompt_tokens + response_tokens)::BIGINT AS tokens
  FROM sample GROUP BY step_id
)
JOIN kept_step USING (step_id)
LEFT JOIN (
  SELECT step_id, max(seconds) FILTER (name = 'rollout') AS rollout,
    max(seconds) FILTER (name = 'update_actor') AS update_actor
  FROM (
    SELECT step_id, process, name, sum(end_ns - start_ns) / 1e9 AS seconds FROM kept_span
    WHERE mode IS DISTINCT FROM 'eval' GROUP BY step_id, process, name
  ) GROUP BY step_id
) USING (step_id)
WHERE done AND step_end_ns > step_start_ns ORDER BY tokens, step_id
