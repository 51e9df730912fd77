-- name: sample_batch
-- batches that are counted: of training, whole (if any is), of a step that stands; `unit` is the
-- batch, or -1 where groups are generated one by one for a queue
SELECT batch.*, number, CASE WHEN queued THEN -1 ELSE batch_id END AS unit
FROM kept_batch AS batch LEFT JOIN step USING (step_id)
WHERE mode = 'train'
  AND (whole OR NOT EXISTS (FROM kept_batch WHERE mode = 'train' AND whole))

-- name: sample
-- trajectories of these batches; those of one `cluster`, a group, are not independent
SELECT trajectory.*, number, unit, workload_step, hash(batch_id, grp) AS cluster FROM trajectory
JOIN (SELECT batch_id, number, unit, workload_step FROM sample_batch) USING (batch_id)

-- name: whole
SELECT count(*) FILTER (whole), count(*) FILTER (NOT whole),
  sum("rows") FILTER (NOT whole)
FROM kept_batch WHERE mode = 'train'

-- name: kind
SELECT kind FROM run
