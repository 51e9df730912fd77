-- name: died
SELECT process, rank, role, last_seen_ns - start_ns AS lived_ns,
       (SELECT max(last_seen_ns) FROM process) - last_seen_ns AS before_ns
FROM process WHERE state = 'died' ORDER BY last_seen_ns, process

-- name: unfinished
stepped AS (
    SELECT attempt, min(end_ns) AS since_ns
    FROM (SELECT attempt, process, max(end_ns) AS end_ns FROM span WHERE name = 'step' GROUP BY ALL)
    GROUP BY attempt
), unfinished AS (
    -- Attempts of which a process that records stages was inside one when last seen.
    SELECT w.attempt, max(w.end_ns) AS until_ns,
           arg_max(w.step_id, (w.end_ns, w.step_id)) AS step_id,
           coalesce(any_value(s.since_ns), min(w.start_ns)) AS since_ns
    FROM ledger_window AS w LEFT JOIN stepped AS s USING (attempt)
    WHERE w.attempt IN (
        SELECT p.attempt FROM open_span JOIN process AS p USING (process)
        WHERE process IN (SELECT process FROM gpu_teller) AND step >= 1 AND age_s IS NOT NULL
          AND p.state IN ('running', 'died', 'unknown'))
    GROUP BY w.attempt
), worker AS (
    SELECT process, min(rank) AS rank FROM gpu_rank WHERE process IS NOT NULL GROUP BY process
)

-- name: open
-- ``since``: after each process ended its last step. What was open then has held up no step.
WITH {unfinished}
SELECT o.process, o.id, o.name, o.detail, o.start_ns, age_s, u.attempt, u.step_id,
       -- What started between two steps is inside of what goes on there.
       CASE WHEN o.parent = 0 AND o.start_ns >= (
           SELECT any_value(start_ns) FROM open_span WHERE process = o.process AND id = $outside
       ) AND o.id <> $outside THEN $outside ELSE o.parent END AS parent,
       o.start_ns >= u.since_ns AS since,
       (u.until_ns - o.start_ns) / 1e9 AS until_s, coalesce(w.rank, p.rank) AS rank, p.state,
       p.role, p.pid, p.host
FROM open_span AS o JOIN process AS p USING (process) JOIN unfinished AS u USING (attempt)
LEFT JOIN worker AS w USING (process)
WHERE age_s IS NOT NULL AND o.start_ns IS NOT NULL
  AND p.state IN ('running', 'died', 'unknown')
ORDER BY o.start_ns, o.process, o.id

-- name: dead
-- Ranks that were last seen before others of their attempt, and after which no step ended.
WITH {unfinished}
SELECT process, u.attempt, u.step_id, (u.until_ns - p.last_seen_ns) / 1e9 AS until_s,
       coalesce(w.rank, p.rank) AS rank, p.state, p.role, p.pid, p.host
FROM worker AS w JOIN process AS p USING (process) JOIN unfinished AS u USING (attempt)
WHERE (u.until_ns - p.last_seen_ns) / 1e9
      > CASE p.state WHEN 'died' THEN $here WHEN 'unknown' THEN $elsewhere END
  -- Without a table of open spans it is last seen when a span of it last ended.
  AND EXISTS (FROM open_span AS o WHERE o.process = p.process
              AND (o.thread IS NOT NULL OR o.id = $outside)
              AND o.age_s IS NOT NULL AND o.start_ns IS NOT NULL)
  AND NOT EXISTS (FROM span AS s WHERE s.attempt = p.attempt AND s.name = 'step'
                  AND s.end_ns > p.last_seen_ns)
ORDER BY p.last_seen_ns, process

-- name: around
-- What a trainer is in, step or stage.
SELECT s.process, t.session, t.life, s.start_ns, s.end_ns
FROM span AS s JOIN step AS t USING (step_id)
WHERE process IN (SELECT process FROM gpu_teller) AND name IN $around

-- name: gaps
-- How long a trainer was between two steps, or between stages outside of a step.
SELECT $between, '', start_ns - before_ns FROM ({islands}) WHERE start_ns > before_ns

-- name: past
-- How long spans took that ended, by name and detail, and by name with a detail that is NULL.
SELECT name, detail, count(*) AS count, quantile_cont(s, 0.5) AS p50_s,
       quantile_cont(s, 0.99) AS p99_s, max(s) AS longest_s
FROM (
    SELECT name, detail, ns / 1e9 AS s FROM (
        SELECT name, coalesce(function, method, label, '') AS detail, end_ns - start_ns AS ns
        FROM span
        UNION ALL SELECT 'tool_call', coalesce(tool, ''), end_ns - start_ns FROM tool_call
        UNION ALL SELECT 'verify', coalesce(function, ''), end_ns - start_ns FROM verification
        UNION ALL SELECT 'turn', '', end_ns - start_ns FROM turn
        UNION ALL SELECT 'turn', '', end_ns - start_ns FROM engine_call
        UNION ALL {gaps}
        UNION ALL SELECT 'trajectory', '', end_ns - start_ns FROM trajectory WHERE own_times
    ) WHERE name IN $names AND ns >= 0
)
GROUP BY GROUPING SETS ((name, detail), (name))
