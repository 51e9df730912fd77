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
    arg_min(device, (round(amount / nullif(covered_ns, 0), 9), device), 5)
      FILTER (round(amount / nullif(covered_ns, 0), 9) IS NOT NULL) AS least
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
