-- name: apart
-- Intervals by keys, those that touch made one.
SELECT {keys}, min(scope) AS scope, min(start_ns) AS start_ns, max(end_ns) AS end_ns
FROM ({islands})
GROUP BY {keys}, island

-- name: spans
-- Stages of finished steps by whose GPUs they are on.
SELECT step_id, name AS stage, owner, scope, span.start_ns, span.end_ns
FROM kept_span AS span JOIN works_on USING (process)
SEMI JOIN (SELECT step_id FROM kept_step WHERE done) USING (step_id)
WHERE name IN ({leaves}) AND (name = 'eval' OR mode IS DISTINCT FROM 'eval')

-- name: stages
-- These on each of the GPUs.
SELECT step_id, stage, device, scope, start_ns, end_ns
FROM ({spans_apart})
JOIN owned USING (owner)
JOIN (SELECT device FROM device WHERE kind = 'gpu') USING (device)

-- name: works_on
-- whose GPUs the stages of a process are on: those that it works on itself (process), else those of
-- its job (job), else all of its node (node)
WITH own AS (
  SELECT DISTINCT process, attempt FROM device_process JOIN process USING (process)
  WHERE how = 'torch'
    OR process IN (SELECT process FROM device_process GROUP BY process HAVING count(*) = 1)
)
SELECT process, scope,
  CASE scope WHEN 'process' THEN 'process ' || process WHEN 'job' THEN 'job ' || attempt
    ELSE 'node ' || CASE WHEN boot <> '' THEN boot ELSE host END END AS owner
FROM (
  SELECT *, CASE WHEN process IN (SELECT process FROM own) THEN 'process'
    WHEN attempt IN (SELECT attempt FROM own) THEN 'job' ELSE 'node' END AS scope
  FROM process
)

-- name: owned
-- GPUs of an owner in works_on
SELECT DISTINCT owner, device FROM (
  SELECT 'process ' || process AS owner, device, process FROM device_process
  UNION ALL
  SELECT 'job ' || attempt, device, process FROM device_process JOIN process USING (process)
) WHERE process IN (SELECT process FROM works_on WHERE scope = 'process')
UNION ALL
SELECT unnest(['node ' || boot, 'node ' || host]), device FROM device
WHERE kind = 'gpu' AND parent IS NULL

-- name: counter_piece
-- a piece of time in which a counter of a device grew by an amount, what of it was read, and the
-- sums before it; those of gaps with its own
WITH pairs AS (
  SELECT device, counter, start_ns, end_ns, value,
    lag(end_ns) OVER line AS last_ns, lag(value) OVER line AS last
  FROM reading WHERE counter IN ({used})
  WINDOW line AS (PARTITION BY device, counter ORDER BY end_ns)
), periods AS (
  SELECT device, counter, 5 * median(end_ns - last_ns) AS limit_ns
  FROM pairs GROUP BY device, counter
), pieces AS (
  SELECT device, counter,
    CASE WHEN counter IN ({window})
      THEN greatest(start_ns, coalesce(last_ns, start_ns)) ELSE last_ns END AS start_ns,
    end_ns,
    CASE WHEN counter IN ({total}) THEN value - last
      WHEN counter IN ({window}) THEN value
        * (end_ns - greatest(start_ns, coalesce(last_ns, start_ns)))
      ELSE (value + last) / 2 * (end_ns - last_ns) END AS amount,
    counter IN ({total}) AND end_ns - last_ns > limit_ns AS gap, value, last
  FROM pairs JOIN periods USING (device, counter)
  WHERE counter IN ({window}, {total}) OR end_ns - last_ns <= limit_ns
), parts AS (
  SELECT *, (end_ns - start_ns)::DOUBLE AS length_ns,
    if(gap, 0, amount) AS read_amount, if(gap, 0, length_ns) AS read_ns,
    if(gap, amount, 0) AS gap_amount, if(gap, length_ns, 0) AS gap_ns
  FROM pieces WHERE end_ns > start_ns AND amount >= 0
), beside AS (
  SELECT *, if(lag(end_ns) OVER pair = start_ns AND NOT lag(gap) OVER pair,
      lag(amount / length_ns) OVER pair, NULL) AS rate_before,
    if(lead(start_ns) OVER pair = end_ns AND NOT lead(gap) OVER pair,
      lead(amount / length_ns) OVER pair, NULL) AS rate_after
  FROM parts WINDOW pair AS (PARTITION BY device, counter ORDER BY start_ns)
), shaped AS (
  SELECT * EXCLUDE (value, last, rate_before, rate_after),
    -- Of a total: where its rate changed, if it did so once between these two readings.
    -- Stages start and end with a step of power, and their edges are what is asked for.
    if(counter IN ({total}) AND amount / length_ns
        BETWEEN least(rate_before, rate_after) AND greatest(rate_before, rate_after)
        AND rate_before <> rate_after AND NOT gap,
      length_ns * (amount / length_ns - rate_after) / (rate_before - rate_after), length_ns
    ) AS turn_ns,
    if(turn_ns < length_ns, rate_before, amount / length_ns) AS rate,
    if(turn_ns < length_ns, rate_after, 0) AS next_rate,
    -- Of a gauge: a straight line.
    if(counter IN ({gauge}), (value - last) / length_ns, 0) AS slope
  FROM beside
)
SELECT *, sum(read_amount) OVER line - read_amount AS amount_before,
  sum(read_ns) OVER line - read_ns AS covered_before,
  sum(gap_amount) OVER line - gap_amount AS gap_amount_before,
  sum(gap_ns) OVER line - gap_ns AS gap_before
FROM shaped
WINDOW line AS (PARTITION BY device, counter ORDER BY start_ns ROWS UNBOUNDED PRECEDING)

-- name: device_use
-- by how much a counter of a GPU grew in a stage, and for how much of the time is known
WITH counters AS (
  SELECT DISTINCT device, counter FROM counter_piece
), edges AS (
  SELECT step_id, stage, device, start_ns AS begin_ns,
    unnest([start_ns, end_ns]) AS edge_ns, unnest([-1, 1]) AS sign
  FROM device_stage
), asked AS (
  SELECT edges.*, counter FROM edges JOIN counters USING (device)
), known AS (
  SELECT asked.*, piece.* EXCLUDE (device, counter),
    least(length_ns, edge_ns - start_ns) AS passed_ns, passed_ns / length_ns AS share,
    rate * least(passed_ns, turn_ns) + next_rate * greatest(0, passed_ns - turn_ns)
      + slope * passed_ns * (passed_ns - length_ns) / 2 AS passed,
    -- A gap in which the stage starts or ends is omitted.
    if(edge_ns > start_ns AND edge_ns < end_ns, if(sign < 0, 1, 0), share) AS gap_share
  FROM asked ASOF JOIN counter_piece AS piece
    ON asked.device = piece.device AND asked.counter = piece.counter
    AND asked.edge_ns >= piece.start_ns
), told AS (
  SELECT step_id, stage, device, counter,
    sum(sign * (amount_before + if(gap, 0, passed) + gap_amount_before
      + gap_amount * gap_share)) AS amount,
    sum(sign * (covered_before + read_ns * share + gap_before + gap_ns * gap_share))
      AS covered_ns
  FROM known GROUP BY step_id, stage, device, counter, begin_ns
)
SELECT step_id, stage, device, counter,
  -- Below 0 where it starts and ends in one gap.
  sum(if(covered_ns < 0, 0, amount)) AS amount, sum(greatest(0, covered_ns)) AS covered_ns
FROM told GROUP BY step_id, stage, device, counter

-- name: readings
SELECT count(*) FROM reading

-- name: elsewhere
SELECT count(DISTINCT device) FROM reading JOIN device USING (device)
WHERE kind = 'gpu' AND device NOT IN (SELECT device FROM device_stage)

-- name: faults
SELECT count(*), list_sort(list(DISTINCT device)) FROM device_fault JOIN device USING (device)

-- name: by_stage
WITH lengths AS (
  SELECT stage, count(DISTINCT device) AS gpus, max(scope) AS scope,
    sum(end_ns - start_ns)::DOUBLE AS ns, avg(end_ns - start_ns) AS mean_ns
  FROM device_stage GROUP BY stage
), sums AS (
  SELECT stage, counter, sum(amount) AS amount, sum(covered_ns)::DOUBLE AS covered_ns,
    arg_min(device, ((amount / nullif(covered_ns, 0))::FLOAT, device), 5)
      FILTER ((amount / nullif(covered_ns, 0))::FLOAT IS NOT NULL) AS least
  FROM (
    SELECT stage, counter, device, sum(amount) AS amount, sum(covered_ns) AS covered_ns
    FROM device_use GROUP BY stage, counter, device
  )
  GROUP BY stage, counter
)
SELECT stage, gpus, lengths.ns / 1e9 AS seconds, scope, mean_ns,
  map(list(counter ORDER BY counter) FILTER (counter IS NOT NULL),
    list({'mean': amount / nullif(covered_ns, 0),
      'rate': amount / nullif(covered_ns / 1e9, 0), 'known': covered_ns / lengths.ns,
      'least': least} ORDER BY counter) FILTER (counter IS NOT NULL)) AS counters
FROM lengths LEFT JOIN sums USING (stage)
GROUP BY ALL ORDER BY seconds DESC, stage

-- name: step_energy
SELECT stage, step_id, number AS step, sum(amount) AS energy, sum(tokens) AS tokens
FROM (
  SELECT stage, step_id, sum(amount) AS amount, sum(covered_ns) AS covered_ns
  FROM device_use WHERE counter = 'energy_j' GROUP BY stage, step_id
) JOIN (
  SELECT stage, step_id, sum(end_ns - start_ns) AS ns FROM device_stage GROUP BY stage, step_id
) USING (stage, step_id)
JOIN step USING (step_id)
LEFT JOIN (
  SELECT step_id, sum(response_tokens) AS tokens FROM sample GROUP BY step_id
) USING (step_id)
WHERE ns - covered_ns < 1000
GROUP BY stage, step_id, number

-- name: energy
SELECT stage, avg(energy) AS energy,
  sum(energy) FILTER (tokens > 0) / nullif(sum(tokens), 0) AS energy_per_token,
  arg_max(step_id, (round(energy, 6), step_id), 20) FILTER (round(energy, 6) IS NOT NULL) AS steps
FROM ({step_energy}) GROUP BY stage

-- name: period
SELECT median(end_ns - start_ns) FROM counter_piece WHERE counter IN ('sm_active', 'energy_j')

-- name: by_step
SELECT number AS step, any_value(energy) AS energy,
  sum(amount) FILTER (counter = 'sm_active')
    / nullif(sum(covered_ns) FILTER (counter = 'sm_active'), 0) AS sm_active,
  any_value(seconds) AS seconds
FROM device_use JOIN (
  SELECT step_id, sum(end_ns - start_ns) / 1e9 AS seconds FROM device_stage
  WHERE stage = 'step' GROUP BY step_id
) USING (step_id)
JOIN (SELECT step_id, number FROM step) USING (step_id)
LEFT JOIN (SELECT step_id, energy FROM ({step_energy}) WHERE stage = 'step')
  USING (step_id)
WHERE stage = 'step' GROUP BY step_id, number ORDER BY step_id

-- name: gpus
WITH used AS (
  SELECT device, counter, sum(amount) AS amount, sum(covered_ns)::DOUBLE AS covered_ns
  FROM device_use WHERE stage = 'step' GROUP BY device, counter
), most AS (
  SELECT device, max(value) FILTER (counter = 'memory_b') AS memory_max,
    max(value) FILTER (counter = 'temperature_c') AS temperature_max
  FROM reading GROUP BY device
)
SELECT device, any_value(uuid) AS uuid, any_value(host) AS host,
  max(amount / covered_ns) FILTER (counter = 'sm_active') AS sm_active,
  max(amount / covered_ns) FILTER (counter = 'utilization') AS utilization,
  max(amount / covered_ns * 1e9) FILTER (counter = 'energy_j') AS watts,
  max(amount / covered_ns * 1e9) FILTER (counter = 'throttle_thermal_s')
    AS throttle_thermal,
  any_value(memory_max) AS memory_max, any_value(temperature_max) AS temperature_max
FROM used JOIN most USING (device) JOIN device USING (device)
WHERE covered_ns > 0
GROUP BY device ORDER BY sm_active, device
