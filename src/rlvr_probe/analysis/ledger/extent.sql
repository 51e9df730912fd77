-- name: extent
SELECT (SELECT count(*) FROM gpu), min(start_ns), max(end_ns), count(DISTINCT step_id)
FROM ledger_window
