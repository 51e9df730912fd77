-- name: steps
-- Finished steps, and the wall time of each, by the ledger, ns.
SELECT step_id, number, sum(ns)::DOUBLE / (SELECT count(*) FROM gpu) AS ns
FROM ledger JOIN kept_step USING (step_id) WHERE done AND number >= 1
GROUP BY ALL ORDER BY step_id

-- name: facts
-- What trainings recorded of themselves, the last one last.
SELECT facts FROM session ORDER BY attempt, session, process

-- name: machines
-- Machines, and models of GPUs.
SELECT count(DISTINCT host),
       (SELECT string_agg(DISTINCT model, ', ' ORDER BY model) FROM device
        WHERE kind = 'gpu' AND model <> '')
FROM process WHERE host <> ''
