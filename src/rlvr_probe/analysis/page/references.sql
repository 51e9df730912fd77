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
