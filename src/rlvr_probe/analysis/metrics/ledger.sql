-- name: gpus
SELECT count(*) FROM gpu

-- name: wall
SELECT (max(end_ns) - min(start_ns)) / 1e9, any_value(step_id) FROM segment

-- name: steps
SELECT DISTINCT step_id FROM segment ORDER BY step_id

-- name: gpu_time
SELECT sum(ns) / 1e9 FROM ledger

-- name: token_rate
SELECT (SELECT sum(response_tokens) FROM kept_trajectory WHERE mode = 'train')
  / nullif((SELECT sum(ns) / 1e9 FROM ledger WHERE category <> 'eval'), 0)

-- name: hidden_wait
SELECT count(*), coalesce(sum(ns), 0) / 1e9 FROM hidden_wait WHERE ns >= 0

-- name: by_step
SELECT step_id, any_value(number) AS step, {categories}
FROM ledger LEFT JOIN step USING (step_id) GROUP BY step_id ORDER BY step_id

-- name: by_gpu
SELECT gpu, any_value(process) AS process, any_value(rank) AS rank, any_value(device) AS device,
  any_value(part) AS part, {categories}
FROM ledger JOIN gpu USING (gpu) GROUP BY gpu ORDER BY gpu

-- name: barriers
SELECT step_id, barrier, gpu_ns / 1e9 AS gpu_s, last_kind, process, rank, engine, trajectory_id,
  turn, name
FROM barrier_wait
ORDER BY gpu_ns DESC, step_id, barrier, last_kind, process, trajectory_id LIMIT 200

-- name: time
SELECT category, sum(ns) / 1e9 AS seconds,
  list(step_id ORDER BY ns DESC, step_id)[1:20] AS steps, count(step_id) AS count
FROM (SELECT category, step_id, sum(ns) AS ns FROM ledger GROUP BY category, step_id)
GROUP BY category

-- name: processes
SELECT category, list(process ORDER BY ns DESC, process)[1:20] AS processes,
  count(*) AS count
FROM (SELECT category, process, sum(ns) AS ns FROM ledger JOIN gpu USING (gpu)
      WHERE process IS NOT NULL GROUP BY category, process)
GROUP BY category

-- name: wall_time
SELECT category, ns / 1e9 AS seconds FROM ({covered})
