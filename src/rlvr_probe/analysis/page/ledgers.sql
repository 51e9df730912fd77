-- name: steps
SELECT count(*) FROM step WHERE number >= 1

-- name: make_bars
-- Steps, several that follow one another together.
CREATE OR REPLACE TEMP TABLE page_step AS
SELECT step_id, (row_number() OVER (ORDER BY start_ns, step_id) - 1) // $together AS bar
FROM step WHERE number >= 1

-- name: bars
SELECT min(number), max(number)
FROM page_step JOIN step USING (step_id) GROUP BY bar ORDER BY bar

-- name: by_bar
SELECT bar, category, sum(ns) / 1e9 AS gpu_s
FROM ledger JOIN page_step USING (step_id) GROUP BY bar, category

-- name: by_rank
-- GPUs in the order of their ranks, those of a rollout alone behind the others.
SELECT gpu, key, rank, part,
  row_number() OVER (ORDER BY part = 'rollout', rank NULLS LAST, gpu) - 1 AS line
FROM gpu

-- name: names
SELECT gpu, key, rank, part FROM ({by_rank}) ORDER BY line

-- name: waited
-- Share of its time that each GPU waited in each bar; of several GPUs in a line, that of the one
-- that waited least: it is who is waited for.
SELECT place.line // $lines AS line, bar, min(share) AS share
FROM (
  SELECT gpu, bar,
    coalesce(sum(ns) FILTER (starts_with(category, 'wait.')), 0) / nullif(sum(ns), 0) AS share
  FROM ledger JOIN page_step USING (step_id) GROUP BY gpu, bar
) JOIN ({by_rank}) place USING (gpu)
GROUP BY 1, bar ORDER BY 1, bar

-- name: who
-- Who came last to barriers, the most expensive first.
SELECT barrier, last_kind, name, engine, rank, count(*) AS times, sum(gpu_ns) / 1e9 AS gpu_s,
  arg_max(step_id, gpu_ns) AS worst_step, arg_max(trajectory_id, gpu_ns) AS worst_trajectory
FROM barrier_wait GROUP BY barrier, last_kind, name, engine, rank
ORDER BY gpu_s DESC LIMIT 40

-- name: worst
-- The most expensive barriers.
SELECT step_id, barrier, gpu_ns / 1e9 AS gpu_s, last_kind, name, engine, rank, process,
  trajectory_id, turn
FROM barrier_wait ORDER BY gpu_ns DESC LIMIT 200
