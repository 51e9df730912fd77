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

-- name: counts
-- Steps that were finished, and what was generated, of training alone; rows known to be missing.
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
