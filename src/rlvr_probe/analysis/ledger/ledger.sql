-- name: unit
SELECT count(*), count(device), count(*) FILTER (starts_with(key, 'rank ')) FROM gpu

-- name: extent
SELECT (SELECT count(*) FROM gpu), min(start_ns), max(end_ns), count(DISTINCT step_id)
FROM ledger_window

-- name: unread
SELECT count(*) FROM (
    SELECT step_id, category FROM segment WHERE starts_with(category, 'work.update')
    GROUP BY step_id, category HAVING count(DISTINCT gpu) > 1
) updated ANTI JOIN hidden_wait USING (step_id, category)

-- name: whole
SELECT name, count(DISTINCT stage) FROM ledger_stage stage
WHERE mode = 'train' AND end_ns > start_ns
  AND process IN (SELECT process FROM gpu_teller WHERE NOT own)
  AND stage NOT IN (SELECT stage FROM ledger_part WHERE stage IS NOT NULL)
  AND stage NOT IN (SELECT stage FROM ledger_rollout)
  AND name IN ('rollout', 'old_logprob', 'ref_logprob', 'values', 'update_actor', 'update_critic',
               'weight_sync')
GROUP BY name
UNION ALL
SELECT name, count(*) FROM ledger_stage
WHERE mode = 'train' AND name = 'rollout' AND stage NOT IN (SELECT stage FROM ledger_rollout)
  AND process IN (SELECT process FROM gpu_teller WHERE own)
GROUP BY name
ORDER BY name

-- name: beside
SELECT count(*) FROM device
WHERE kind = 'gpu' AND device NOT IN (SELECT device FROM gpu WHERE device IS NOT NULL)

-- name: after
-- How long a process was seen after all that is known of its training, s; where it did not end by
-- itself, and that is longer than any step.
WITH ended AS (
    SELECT max(end_ns) AS end_ns, max(end_ns - start_ns) AS longest_ns FROM ledger_window
)
SELECT max(p.last_seen_ns - ended.end_ns) / 1e9 AS s
FROM process AS p, ended
WHERE process IN (SELECT process FROM gpu_teller) AND state IN ('running', 'died', 'unknown')
  AND p.last_seen_ns - ended.end_ns > greatest(longest_ns, 10e9)

-- name: unrecorded
SELECT count(*) FROM gpu WHERE process IS NULL AND part = 'train'

-- name: width
SELECT max(width_ns) / 1e9 FROM ledger_clock

-- name: span
SELECT begin_ns, end_ns FROM ledger_span

-- name: gpus
SELECT gpu.*, coalesce(processes, []) FROM gpu LEFT JOIN (
    SELECT gpu, list(process ORDER BY process) AS processes FROM gpu_process GROUP BY gpu
) USING (gpu) ORDER BY gpu

-- name: categories
SELECT category, sum(ns)::BIGINT FROM ledger GROUP BY category

-- name: notes
SELECT note FROM ledger_note
