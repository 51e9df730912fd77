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
-- a piece of time in which a counter of a device grew by an amount, or a gap in what was read of
-- one that counts up by itself; its rates in the pieces beside it, and the sums before it
WITH pairs AS (
  SELECT device, counter, start_ns, end_ns, value,
    lag(end_ns) OVER line AS last_ns, lag(value) OVER line AS last,
    lag(end_ns, 2) OVER line AS before_ns, lag(value, 2) OVER line AS before,
    lead(end_ns) OVER line AS next_ns, lead(value) OVER line AS next
  FROM reading WHERE counter IN ({used})
  WINDOW line AS (PARTITION BY device, counter ORDER BY end_ns)
), periods AS (
  SELECT device, counter, 5 * median(end_ns - last_ns) AS limit_ns,
    CASE WHEN counter IN ({total}) THEN 'total' WHEN counter IN ({window}) THEN 'window'
      ELSE 'gauge' END AS kind
  FROM pairs GROUP BY device, counter
), pieces AS (
  SELECT device, counter,
    if(kind = 'window', greatest(start_ns, coalesce(last_ns, start_ns)), last_ns) AS start_ns,
    end_ns,
    CASE kind WHEN 'total' THEN value - last
      WHEN 'window' THEN value * (end_ns - greatest(start_ns, coalesce(last_ns, start_ns)))
      ELSE (value + last) / 2 * (end_ns - last_ns) END AS amount,
    kind = 'total' AND end_ns - last_ns > limit_ns AS gap,
    if(kind = 'total' AND last >= before AND last_ns - before_ns <= limit_ns,
      (last - before) / (last_ns - before_ns), NULL) AS rate_before,
    if(kind = 'total' AND next >= value AND next_ns - end_ns <= limit_ns,
      (next - value) / (next_ns - end_ns), NULL) AS rate_after,
    if(kind = 'gauge', (value - last) / (end_ns - last_ns), 0) AS slope
  FROM pairs JOIN periods USING (device, counter)
  WHERE kind <> 'gauge' OR end_ns - last_ns <= limit_ns
)
SELECT *, sum(amount) OVER line - amount AS amount_before,
  sum((end_ns - start_ns)::DOUBLE) OVER line - (end_ns - start_ns) AS ns_before
FROM pieces WHERE end_ns > start_ns AND amount >= 0
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
), shaped AS (
  SELECT asked.*, piece.* EXCLUDE (device, counter),
    (piece.end_ns - piece.start_ns)::DOUBLE AS length_ns, amount / length_ns AS mean_rate,
    least(length_ns, edge_ns - start_ns) AS passed_ns,
    -- Of a total: where its rate changed, if it did so once between these two readings.
    -- Stages start and end with a step of power, and their edges are what is asked for.
    if(mean_rate BETWEEN least(rate_before, rate_after) AND greatest(rate_before, rate_after)
        AND rate_before <> rate_after,
      length_ns * (mean_rate - rate_after) / (rate_before - rate_after), length_ns) AS turn_ns,
    if(turn_ns < length_ns, rate_before, mean_rate) AS rate
  FROM asked ASOF JOIN counter_piece AS piece
    ON asked.device = piece.device AND asked.counter = piece.counter
    AND asked.edge_ns >= piece.start_ns
), told AS (
  SELECT step_id, stage, device, counter,
    -- A gap in which the stage starts or ends is omitted.
    sum(sign * (amount_before + CASE WHEN NOT gap
      THEN rate * least(passed_ns, turn_ns)
        + coalesce(rate_after, 0) * greatest(0, passed_ns - turn_ns)
        -- Of a gauge: a straight line.
        + slope * passed_ns * (passed_ns - length_ns) / 2
      WHEN passed_ns < length_ns AND sign > 0 OR passed_ns <= 0 THEN 0 ELSE amount END)) AS amount,
    sum(sign * (ns_before + CASE WHEN NOT gap THEN passed_ns
      WHEN passed_ns < length_ns AND sign > 0 OR passed_ns <= 0 THEN 0 ELSE length_ns END))
      AS covered_ns
  FROM shaped GROUP BY step_id, stage, device, counter, begin_ns
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
