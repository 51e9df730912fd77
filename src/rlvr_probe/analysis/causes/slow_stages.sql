-- name: restarts
-- From the end of a session to the first step of the next, ns of wall time.
SELECT step_id, start_ns - before_ns AS ns, number
FROM (
    SELECT min_by(step_id, (start_ns, step_id)) AS step_id,
           min_by(number, (start_ns, step_id)) AS number,
           min(start_ns) AS start_ns,
           lag(max(end_ns)) OVER (ORDER BY min(start_ns)) AS before_ns
    FROM kept_step WHERE number >= 1 GROUP BY attempt, session
)
WHERE start_ns > before_ns
ORDER BY step_id

-- name: evaluated_calls
-- Calls of reward functions in evaluations.
SELECT c.function, c.start_ns, c.end_ns FROM reward_call AS c JOIN kept_batch AS b USING (batch_id)
WHERE b.mode = 'eval' AND c.function IS NOT NULL
UNION ALL
SELECT v.function, v.start_ns, v.end_ns
FROM verification AS v JOIN kept_batch AS b USING (batch_id)
WHERE b.mode = 'eval' AND v.function IS NOT NULL

-- name: evaluated
-- The reward function that evaluations spend most time in, and the share of theirs.
SELECT function AS name,
       least(1, ns * (SELECT count(*) FROM gpu)
                / (SELECT sum(ns) FROM ledger WHERE category = 'eval')) AS share
FROM ({calls}) ORDER BY share DESC, name LIMIT 1

-- name: marked
-- Spans that users marked between stages, as far as they lie there; the longest ones.
SELECT label AS name, sum(least(s.end_ns, g.end_ns) - greatest(s.start_ns, g.start_ns))
              / (SELECT sum(end_ns - start_ns) FROM segment WHERE category = 'bubble') AS share
FROM (SELECT gpu, start_ns, end_ns FROM segment WHERE category = 'bubble') AS g
JOIN gpu_teller USING (gpu)
JOIN (FROM span WHERE name = 'user' ORDER BY end_ns - start_ns DESC, id LIMIT 1_000) AS s
     USING (process)
WHERE s.start_ns < g.end_ns AND s.end_ns > g.start_ns
GROUP BY label ORDER BY share DESC, label LIMIT 1
