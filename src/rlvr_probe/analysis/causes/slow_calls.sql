-- name: tools
SELECT c.tool, count(*) AS calls, median(c.end_ns - c.start_ns) AS ns,
       max(c.end_ns - c.start_ns) AS longest_ns, sum(c.end_ns - c.start_ns) AS total_ns,
       max_by(c.trajectory_id, (c.end_ns - c.start_ns, c.trajectory_id), 20)
           FILTER (c.end_ns - c.start_ns IS NOT NULL) AS slowest
FROM tool_call AS c JOIN kept_batch AS b USING (batch_id)
WHERE b.mode = 'train' AND c.tool IS NOT NULL
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

-- name: waited
-- Wall time of each step without any verification: no cause here costs more.
WITH laps AS (
    SELECT step_id, max(own_ns + reward_ns) - max(own_ns) AS ns
    FROM cause_lap WHERE lap = 'reward' GROUP BY step_id
), paths AS (
    SELECT step_id, max(end_ns) - max(end_ns - verify_ns) AS ns
    FROM cause_path GROUP BY step_id, batch_id
)
SELECT step_id, sum(ns)::DOUBLE AS ns FROM (FROM laps UNION ALL FROM paths) GROUP BY step_id

-- name: queued
-- Wall time of each step that nothing but queueing for verification took.
WITH verified AS (
    SELECT v.trajectory_id, v.function, t.batch_id, v.start_ns, v.end_ns - v.start_ns AS ns
    FROM verification AS v JOIN cause_path AS t USING (trajectory_id)
), early AS (
    SELECT function, unnest(min_by(ns, (start_ns, trajectory_id), 2)) AS ns
    FROM verified GROUP BY batch_id, function
), alone AS (
    SELECT function, quantile_cont(ns, 0.9) AS usual_ns FROM early GROUP BY function
), shorter AS (
    SELECT trajectory_id, sum(greatest(ns - usual_ns, 0)) AS ns
    FROM verified JOIN alone USING (function) WHERE ns > usual_ns GROUP BY trajectory_id
), batches AS (
    SELECT step_id, max(end_ns) - max(end_ns - coalesce(ns, 0)) AS ns
    FROM cause_path LEFT JOIN shorter USING (trajectory_id) GROUP BY step_id, batch_id
)
SELECT step_id, sum(ns)::DOUBLE AS ns FROM batches GROUP BY step_id ORDER BY step_id

-- name: functions
SELECT v.function, count(*) AS calls, median(v.end_ns - v.start_ns) AS ns,
       max(v.end_ns - v.start_ns) AS longest_ns, sum(v.end_ns - v.start_ns) AS total_ns
FROM verification AS v JOIN cause_path USING (trajectory_id) GROUP BY ALL ORDER BY total_ns DESC

-- name: calls
-- By function: how much longer a call takes for more rows, in logarithms, at the mean.
WITH rows AS (
    SELECT t.batch_id, t.process, r.function, count(*) FILTER (r.value IS NOT NULL) AS rows
    FROM reward AS r JOIN kept_trajectory AS t USING (trajectory_id)
    JOIN kept_batch AS b ON b.batch_id = t.batch_id
    WHERE t.mode = 'train' AND NOT b.queued AND NOT t.own_times GROUP BY ALL
), calls AS (
    SELECT c.function, n.rows, (c.end_ns - c.start_ns) / 1e9 AS s
    FROM reward_call AS c JOIN rows AS n USING (batch_id, process, function)
    WHERE n.rows >= $few
)
SELECT function, count(*) AS calls, avg(rows) AS rows, avg(s) AS s, sum(s) AS total_s,
       max(s) AS longest_s, regr_slope(s, rows) * avg(rows) / avg(s) AS growth
FROM calls GROUP BY function HAVING count(DISTINCT rows) > 1 AND avg(s) > 0 ORDER BY total_s DESC

-- name: spent
SELECT function, count(*) AS calls, median(ns) AS ns, max(ns) AS longest_ns, sum(ns) AS total_ns,
       quantile_disc(ns, 0.25) AS usual_ns
FROM (
    SELECT name AS function, sum(end_ns - start_ns)::BIGINT AS ns FROM cause_called
    WHERE part = 'reward' GROUP BY step_id, process, name
    UNION ALL
    SELECT v.function, v.end_ns - v.start_ns AS ns
    FROM verification AS v JOIN cause_path USING (trajectory_id)
)
WHERE function IS NOT NULL GROUP BY function ORDER BY total_ns DESC LIMIT 2

-- name: shorter
-- Wall time of each step, were calls of reward functions so much shorter, or as long as usual.
WITH others AS ({without}), called AS (
    SELECT l.step_id, l.own_ns, l.reward_ns, l.reward_ns - coalesce(o.ns, 0) AS ns
    FROM cause_lap AS l
    LEFT JOIN others AS o ON o.step_id = l.step_id AND o.process = l.process AND o.part = 'reward'
    WHERE l.lap = 'reward'
), laps AS (
    SELECT step_id,
           max(own_ns + reward_ns)
           - max(own_ns + reward_ns - ns + greatest($left * ns, least($usual, ns))) AS ns
    FROM called GROUP BY step_id
), verified AS (
    SELECT trajectory_id, sum(end_ns - start_ns) AS ns FROM verification
    WHERE list_contains($names, function) GROUP BY trajectory_id
), paths AS (
    SELECT p.step_id,
           max(p.end_ns)
           - max(p.end_ns - coalesce(v.ns - greatest($left * v.ns, least($usual, v.ns)), 0)) AS ns
    FROM cause_path AS p LEFT JOIN verified AS v USING (trajectory_id)
    GROUP BY p.step_id, p.batch_id
)
SELECT step_id, sum(ns)::DOUBLE AS ns FROM (FROM laps UNION ALL FROM paths)
GROUP BY step_id ORDER BY step_id
