-- name: tools
SELECT c.tool, count(*) AS calls, median(c.end_ns - c.start_ns) AS ns,
       max(c.end_ns - c.start_ns) AS longest_ns, sum(c.end_ns - c.start_ns) AS total_ns,
       max_by(c.trajectory_id, (c.end_ns - c.start_ns, c.trajectory_id), 20)
           FILTER (c.end_ns - c.start_ns IS NOT NULL) AS slowest
FROM tool_call AS c JOIN kept_trajectory AS t USING (trajectory_id)
WHERE t.mode = 'train' AND c.tool IS NOT NULL
GROUP BY c.tool HAVING median(c.end_ns - c.start_ns) > 0 ORDER BY total_ns DESC

-- name: replay
-- Wall time of each step, were calls of a tool so much shorter.
WITH turns AS (
    -- Calls of one turn may run at the same time.
    SELECT trajectory_id, least(sum(end_ns - start_ns), max(end_ns) - min(start_ns)) AS ns
    FROM tool_call WHERE list_contains($names, tool) GROUP BY trajectory_id, turn
), mine AS (
    SELECT trajectory_id, sum(ns) AS ns FROM turns GROUP BY trajectory_id
), paths AS (
    SELECT p.step_id,
           max(p.end_ns) - max(p.end_ns - (1 - $left) * coalesce(m.ns, 0)) AS ns
    FROM cause_path AS p LEFT JOIN mine AS m USING (trajectory_id)
    GROUP BY p.step_id, p.batch_id
), others AS ({without}), laps AS (
    SELECT l.step_id,
           max(l.own_ns + l.tool_ns)
           - max(l.own_ns + l.tool_ns - (1 - $left) * (l.tool_ns - coalesce(o.ns, 0))) AS ns
    FROM cause_lap AS l
    LEFT JOIN others AS o ON o.step_id = l.step_id AND o.process = l.process AND o.part = 'tool'
    WHERE l.lap = 'rollout' GROUP BY l.step_id
)
SELECT step_id, sum(ns)::DOUBLE AS ns FROM (FROM paths UNION ALL FROM laps)
GROUP BY step_id ORDER BY step_id
