-- name: counts
SELECT (SELECT count(*) FROM kept_step
        WHERE done AND number >= 1 OR (SELECT kind FROM run) = 'workload') AS steps,
       (SELECT count(*) FROM kept_trajectory WHERE mode = 'train') AS trajectories,
       (SELECT count(*) FROM (SELECT DISTINCT batch_id, grp FROM kept_trajectory
                              WHERE mode = 'train')) AS groups,
       (SELECT sum(prompt_tokens)::BIGINT FROM kept_trajectory WHERE mode = 'train')
           AS prompt_tokens,
       (SELECT sum(response_tokens)::BIGINT FROM kept_trajectory WHERE mode = 'train')
           AS response_tokens,
       (SELECT count(*) FROM process) AS processes,
       CASE WHEN (SELECT kind FROM run) = 'recording'
         THEN (SELECT coalesce(sum(rows), 0)::BIGINT FROM lost) END AS lost

-- name: ledger
SELECT category, sum(ns)::BIGINT AS ns FROM ledger GROUP BY category ORDER BY ns DESC

-- name: ledger_by_step
SELECT step_id, category, sum(ns)::BIGINT AS ns FROM ledger GROUP BY ALL ORDER BY ALL

-- name: waits
SELECT * FROM barrier_wait
ORDER BY gpu_ns DESC, step_id, barrier, last_kind, process, trajectory_id LIMIT 20

-- name: facts
SELECT * FROM run
