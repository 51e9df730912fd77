-- name: span
SELECT begin_ns, end_ns FROM ledger_span

-- name: processes
SELECT gpu, list(process ORDER BY process) FROM gpu_process GROUP BY gpu

-- name: gpus
SELECT gpu, key, device, process, rank, host, boot, part FROM gpu ORDER BY gpu

-- name: categories
SELECT category, sum(ns)::BIGINT FROM ledger GROUP BY category

-- name: notes
SELECT note FROM ledger_note
