-- name: busy_by_step
-- Busy CPU cores of each machine in each step.
WITH rate AS (
    SELECT device, lag(end_ns) OVER history AS start_ns, end_ns,
           (value - lag(value) OVER history) * 1e9 / (end_ns - lag(end_ns) OVER history) AS cores
    FROM reading WHERE counter = 'cpu_s'
    WINDOW history AS (PARTITION BY device ORDER BY end_ns)
), part AS (
    SELECT device, step_id, cores,
           least(r.end_ns, s.end_ns) - greatest(r.start_ns, s.start_ns) AS ns
    FROM rate AS r JOIN kept_step AS s ON r.start_ns < s.end_ns AND r.end_ns > s.start_ns
)
SELECT device, step_id, sum(cores * ns) / sum(ns) AS cores FROM part GROUP BY device, step_id
ORDER BY device, step_id

-- name: busy
-- Busy CPU cores in $steps and in all others, of the machine on which these differ most.
SELECT median(cores) FILTER (list_contains($steps, step_id)) AS slow,
       median(cores) FILTER (NOT list_contains($steps, step_id)) AS usual
FROM ({busy_by_step}) GROUP BY device HAVING slow > 0 AND usual > 0
ORDER BY abs(ln(slow / usual)) DESC, device LIMIT 1
