-- name: last
SELECT b.step_id, barrier, gpu_ns, last_kind, rank, b.engine, trajectory_id, turn, name, t.grp,
       t.sample
FROM barrier_wait AS b LEFT JOIN trajectory AS t USING (trajectory_id)
WHERE b.step_id IN (SELECT unnest($steps::INTEGER[])) AND gpu_ns > 0
QUALIFY row_number() OVER (PARTITION BY b.step_id ORDER BY gpu_ns DESC, barrier,
                           last_kind, trajectory_id, rank) = 1

-- name: numbers
SELECT step_id, number FROM kept_step
