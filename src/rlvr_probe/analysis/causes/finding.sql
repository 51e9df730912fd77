-- name: numbers
SELECT step_id, number FROM kept_step
