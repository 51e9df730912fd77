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
  arg_max(step_id, (gpu_ns, step_id, trajectory_id)) AS worst_step,
  arg_max(trajectory_id, (gpu_ns, step_id, trajectory_id)) AS worst_trajectory
FROM barrier_wait GROUP BY barrier, last_kind, name, engine, rank
ORDER BY gpu_s DESC, barrier, last_kind, name, engine, rank LIMIT 40

-- name: worst
-- The most expensive barriers.
SELECT step_id, barrier, gpu_ns / 1e9 AS gpu_s, last_kind, name, engine, rank, process,
  trajectory_id, turn
FROM barrier_wait
ORDER BY gpu_ns DESC, step_id, barrier, last_kind, process, trajectory_id LIMIT 200

-- name: length_steps
SELECT count(DISTINCT step_id) FROM trajectory WHERE coalesce(mode, 'train') = 'train'

-- name: make_length_bars
-- Steps with trajectories, several that follow one another together.
CREATE OR REPLACE TEMP TABLE page_length_step AS
SELECT step_id, number,
  (row_number() OVER (ORDER BY start_ns NULLS LAST, number, step_id) - 1) // $together AS bar
FROM step WHERE superseded_by IS NULL AND step_id IN (
  SELECT step_id FROM trajectory WHERE coalesce(mode, 'train') = 'train'
)

-- name: length_bars
SELECT min(number), max(number) FROM page_length_step GROUP BY bar ORDER BY bar

-- name: classes
SELECT bar, CASE WHEN response_tokens < 1 THEN 0
    ELSE floor($classes * log2(response_tokens))::INTEGER END AS class,
  count(*) AS trajectories
FROM trajectory JOIN page_length_step USING (step_id)
WHERE coalesce(mode, 'train') = 'train' AND response_tokens IS NOT NULL
GROUP BY bar, class ORDER BY bar, class

-- name: cap
SELECT max_response_tokens FROM run

-- name: trajectory
SELECT trajectory_id, number AS step, grp AS "group", sample, prompt_tokens AS prompt,
  trajectory.response_tokens AS response, engine
FROM trajectory LEFT JOIN step USING (step_id)
WHERE trajectory_id IN (SELECT unnest($ids::BIGINT[])) ORDER BY trajectory_id

-- name: process
SELECT process, key, rank, role, host, pid FROM process
WHERE process IN (SELECT unnest($ids::BIGINT[])) ORDER BY process

-- name: device
SELECT device, uuid, model, host FROM device WHERE device IN (SELECT unnest($ids::BIGINT[]))

-- name: step
SELECT step_id, number, attempt, (end_ns - start_ns) / 1e9 AS seconds FROM step
WHERE step_id IN (SELECT unnest($ids::BIGINT[])) ORDER BY step_id

-- name: hosts
SELECT count(DISTINCT host) FROM process WHERE host <> ''

-- name: lost
SELECT reason, sum(rows)::BIGINT AS rows FROM lost
GROUP BY reason HAVING sum(rows) > 0 ORDER BY rows DESC
