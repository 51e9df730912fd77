-- name: late
-- By rank and part: how much longer it takes than its peers do in the mean, in logarithms.
WITH tokens AS (
    SELECT step_id, process, sum(response_tokens)::DOUBLE AS tokens,
           max(response_tokens)::DOUBLE AS longest
    FROM kept_trajectory WHERE mode = 'train' AND step_id IS NOT NULL
    GROUP BY ALL HAVING sum(response_tokens) > 0
), beside AS (
    SELECT p.*, (sum(ns) OVER part_of - ns) / (count(*) OVER part_of - 1) AS others_ns,
           tokens * (count(tokens) OVER part_of - 1) / nullif(sum(tokens) OVER part_of - tokens, 0)
           AS more, longest * (count(longest) OVER part_of - 1)
           / nullif(sum(longest) OVER part_of - longest, 0) AS longer
    FROM cause_part AS p LEFT JOIN tokens USING (step_id, process)
    WINDOW part_of AS (PARTITION BY step_id, stage, team)
    QUALIFY count(*) OVER part_of > 1
), due AS (
    SELECT *, others_ns * CASE WHEN stage = 'generation' THEN greatest(1, more, longer) ELSE 1 END
           AS due_ns
    FROM beside WHERE ns > 0 AND others_ns > 0
), told AS (
    SELECT *, ln(ns / due_ns) AS later, ns - due_ns AS later_ns FROM due
)
SELECT b.process, any_value(coalesce(w.rank, p.rank)) AS rank,
       any_value(b.team) AS team, b.stage, b.part,
       count(DISTINCT b.step_id) AS steps,
       median(b.later) AS later, quantile_cont(b.later, 0.2) AS usually,
       median(b.ns - b.others_ns) AS ns
FROM told AS b JOIN process AS p USING (process)
LEFT JOIN (SELECT DISTINCT process, rank FROM cause_work) AS w USING (process)
GROUP BY b.process, b.stage, b.part
HAVING count(DISTINCT b.step_id) >= $few AND median(b.later) >= $least AND usually >= $often
   AND (avg(b.later) >= $sure * stddev_samp(b.later) / sqrt(count(*))
        OR avg(b.later_ns) >= $sure * stddev_samp(b.later_ns) / sqrt(count(*)))
ORDER BY sum(b.ns - b.others_ns) DESC
LIMIT 3

-- name: replay
WITH excess AS (
    SELECT step_id, lap, process, greatest(0, ns - (whole_ns - ns) / (ranks - 1)) AS ns
    FROM (SELECT *, sum(ns) OVER step AS whole_ns, count(*) OVER step AS ranks
          FROM cause_part WHERE stage = $stage
          WINDOW step AS (PARTITION BY step_id, team))
    WHERE process = $process AND ranks > 1
)
SELECT l.step_id,
       (max(own_ns + tool_ns + reward_ns)
        - max(own_ns + tool_ns + reward_ns - coalesce(e.ns, 0)))::DOUBLE AS ns
FROM cause_lap AS l LEFT JOIN excess AS e USING (step_id, lap, process)
WHERE (l.step_id, l.lap) IN (SELECT (step_id, lap) FROM excess)
GROUP BY l.step_id ORDER BY l.step_id
