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
