-- name: ends
-- By machine: how much later than the first one it ends what all end together, s.
WITH together AS (
    SELECT w.step_id, w.stage, w.team, p.boot, any_value(p.host) AS host, median(w.end_ns) AS end_ns
    FROM cause_work AS w JOIN process AS p USING (process)
    WHERE w.together GROUP BY ALL
), apart AS (
    SELECT b.host, b.boot, b.end_ns - a.end_ns AS ns
    FROM together AS a JOIN together AS b USING (step_id, stage, team)
    WHERE a.boot = (SELECT min(boot) FROM together) AND b.boot <> a.boot
)
SELECT any_value(host) AS host, median(ns) / 1e9 AS s, mad(ns) / 1e9 AS varies_s, count(*) AS times
FROM apart GROUP BY boot HAVING count(*) >= 3
ORDER BY abs(median(ns)) DESC

-- name: corrected
-- By how much the clock of a machine was corrected, s: at most.
SELECT host, abs(corrected_s) AS s
FROM process WHERE corrected_s <> 0 ORDER BY s DESC LIMIT 1
