-- name: gpus
-- The places of the ledger by rank, those of a rollout alone behind the others.
SELECT gpu, process, device, rank FROM gpu ORDER BY part = 'rollout', rank NULLS LAST, gpu

-- name: waited
-- GPUs by how long they waited.
SELECT gpu, sum(ns) FILTER (starts_with(category, 'wait.')) AS waited FROM ledger
GROUP BY gpu ORDER BY waited, gpu

-- name: steps
SELECT step_id, end_ns - start_ns FROM step WHERE number >= 1 ORDER BY start_ns, step_id
