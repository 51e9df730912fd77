-- name: ledger
SELECT category, sum(ns)::BIGINT AS ns FROM ledger GROUP BY category ORDER BY ns DESC

-- name: ledger_by_step
SELECT step_id, category, sum(ns)::BIGINT AS ns FROM ledger GROUP BY ALL ORDER BY ALL

-- name: waits
SELECT * FROM barrier_wait
ORDER BY gpu_ns DESC, step_id, barrier, last_kind, process, trajectory_id LIMIT 20

-- name: facts
SELECT * FROM run
