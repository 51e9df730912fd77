-- name: paces
-- By rank, and by whether it was hot: logarithm of how much longer it took; and ``surely``, what it
-- is at most in the stage in which it is least.
WITH tokens AS (
    SELECT step_id, process, sum(prompt_tokens + response_tokens) AS tokens
    FROM kept_trajectory WHERE mode = 'train' AND step_id IS NOT NULL GROUP BY ALL
), taken AS (
    SELECT w.*, t.tokens FROM cause_work AS w LEFT JOIN tokens AS t USING (step_id, process)
    WHERE NOT w.together AND w.ranks > 1 AND w.ns > 0
), rough AS (
    SELECT stage, team, greatest(regr_intercept(ns, tokens), 0) AS fixed,
           regr_slope(ns, tokens) AS each, regr_r2(ns, tokens) AS fits
    FROM taken GROUP BY stage, team
), first AS (
    SELECT t.step_id, t.stage, t.team, t.process,
           ln(ns / CASE WHEN isfinite(each) AND each > 0 AND fits > 0.1
                        THEN fixed + each * tokens ELSE 1 END) AS x
    FROM taken AS t JOIN rough USING (stage, team)
), before AS (
    SELECT stage, team, process, exp(median(x)) AS factor
    FROM (SELECT *, x - median(x) OVER (PARTITION BY step_id, stage, team) AS x FROM first)
    GROUP BY ALL
), line AS (
    SELECT stage, team, greatest(regr_intercept(ns / factor, tokens), 0) AS fixed,
           regr_slope(ns / factor, tokens) AS each, regr_r2(ns / factor, tokens) AS fits
    FROM taken JOIN before USING (stage, team, process) GROUP BY stage, team
), second AS (
    SELECT t.*, ln(ns / CASE WHEN isfinite(each) AND each > 0 AND fits > 0.3
                             THEN fixed + each * tokens ELSE 1 END) AS x
    FROM taken AS t JOIN line USING (stage, team)
), apart AS (
    SELECT step_id, stage, team, process, rank, ranks,
           -- Of two ranks the median lies between both.
           (x - median(x) OVER (PARTITION BY step_id, stage, team)) * if(ranks = 2, 2, 1) AS x,
           stage IN ('weight_sync', 'update_weights', 'save_checkpoint', 'load_checkpoint')
           AS fixed_size
    FROM second
), told AS (
    SELECT a.*, h.process IS NOT NULL AS hot
    FROM apart AS a LEFT JOIN cause_hot AS h USING (step_id, process)
), fastest AS (
    SELECT process, hot, min(surely) AS surely
    FROM (SELECT process, hot, median(x) + $sigmas * stddev_samp(x) / sqrt(count(*)) AS surely
          FROM told GROUP BY process, hot, stage HAVING count(*) >= $often)
    GROUP BY process, hot
)
SELECT process, any_value(p.attempt) AS attempt, any_value(told.rank) AS rank, max(team) AS team,
       max(ranks) AS ranks, hot, count(*) AS laps, stddev_samp(x) AS spread,
       least(median(x) FILTER (NOT fixed_size), median(x) FILTER (fixed_size)) AS slower,
       any_value(surely) AS surely, list(DISTINCT step_id) AS steps
FROM told LEFT JOIN fastest USING (process, hot) JOIN process AS p USING (process)
GROUP BY process, hot ORDER BY process, hot

-- name: replay
-- Wall time of each step that a faster rank would have saved.
WITH faster AS (
    SELECT step_id, $factor AS factor FROM (SELECT unnest($steps) AS step_id)
), mine AS (
    -- Of its own attempt: in another one its GPU may have other engines.
    SELECT e.engine FROM process AS own JOIN gpu_process AS p USING (process)
    JOIN engine_gpu AS e ON e.gpu = p.gpu AND e.attempt = own.attempt
    WHERE own.process = $process
), laps AS (
    SELECT step_id,
           max(own_ns + tool_ns + reward_ns)
           - max(CASE WHEN process = $process THEN own_ns / coalesce(factor, 1) ELSE own_ns END
                 + tool_ns + reward_ns) AS ns
    FROM cause_lap LEFT JOIN faster USING (step_id) GROUP BY step_id, lap
), hidden AS (
    SELECT step_id,
           max(ns) * (1 - max(CASE WHEN process = $process THEN weight_ns / coalesce(factor, 1)
                                   ELSE weight_ns END) / max(weight_ns)) AS ns
    FROM cause_hidden LEFT JOIN faster USING (step_id) GROUP BY step_id, stage, team
), paths AS (
    SELECT step_id,
           max(end_ns) - max(end_ns - CASE WHEN engine IN (FROM mine)
                             THEN generated_ns * (1 - 1 / coalesce(factor, 1)) ELSE 0 END) AS ns
    FROM cause_path LEFT JOIN faster USING (step_id) GROUP BY step_id, batch_id
)
SELECT step_id, sum(ns)::DOUBLE AS ns
FROM (FROM laps UNION ALL FROM hidden UNION ALL FROM paths) GROUP BY step_id ORDER BY step_id

-- name: device
-- GPUs of a rank that were hot in these steps, the one that was in most of them first.
SELECT h.device, d.uuid, median(r.value) FILTER (r.counter = 'sm_clock_hz') AS clock_hz,
       max(r.value) FILTER (r.counter = 'temperature_c') AS celsius
FROM cause_hot AS h JOIN device AS d USING (device) JOIN kept_step AS s USING (step_id)
JOIN reading AS r ON r.device = h.device AND r.end_ns BETWEEN s.start_ns AND s.end_ns
WHERE h.process = $process AND h.step_id IN $steps
GROUP BY h.device, d.uuid ORDER BY count(DISTINCT h.step_id) DESC, h.device

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

-- name: replay_part
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
