-- name: facts
-- What trainings recorded of themselves, the last one last.
SELECT facts FROM session ORDER BY attempt, session, process

-- name: machines
-- Machines, and models of GPUs.
SELECT count(DISTINCT host),
       (SELECT string_agg(DISTINCT model, ', ' ORDER BY model) FROM device
        WHERE kind = 'gpu' AND model <> '')
FROM process WHERE host <> ''
