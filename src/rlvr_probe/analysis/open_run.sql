-- name: steps
FROM kept_step

-- name: stages
FROM kept_span WHERE name IN {names}

-- name: groups
FROM prompt_group SEMI JOIN kept_batch USING (batch_id)

-- name: trajectories
FROM kept_trajectory

-- name: turns
FROM turn SEMI JOIN kept_batch USING (batch_id)

-- name: rewards
FROM reward SEMI JOIN kept_batch USING (batch_id)

-- name: devices
FROM device
