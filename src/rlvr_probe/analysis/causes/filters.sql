-- name: kept
SELECT count(*) FILTER (g.kept) AS kept, count(*) FILTER (NOT g.kept) AS thrown_away
FROM prompt_group AS g JOIN kept_batch AS b USING (batch_id)
WHERE b.mode = 'train' AND NOT b.queued

-- name: again
-- Wall time of each step after its first generation, until its last one ended.
WITH rounds AS (
    SELECT b.step_id, b.batch_id, b.ordinal, max(t.end_ns) AS end_ns
    FROM kept_batch AS b JOIN kept_trajectory AS t USING (batch_id)
    WHERE b.mode = 'train' AND NOT b.queued AND b.step_id IS NOT NULL GROUP BY ALL
)
SELECT step_id, (max(end_ns) - min_by(end_ns, ordinal))::DOUBLE AS ns, count(*) AS rounds
FROM rounds GROUP BY step_id ORDER BY step_id
