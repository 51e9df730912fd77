-- name: places
-- The places of the ledger by rank, those of a rollout alone behind the others.
SELECT gpu, process, device, rank FROM gpu ORDER BY part = 'rollout', rank NULLS LAST, gpu

-- name: waited
-- GPUs by how long they waited.
SELECT gpu, sum(ns) FILTER (starts_with(category, 'wait.')) AS waited FROM ledger
GROUP BY gpu ORDER BY waited, gpu

-- name: durations
SELECT step_id, end_ns - start_ns FROM step WHERE number >= 1 ORDER BY start_ns, step_id

-- name: make_gpus
-- The GPUs that are drawn.
CREATE OR REPLACE TEMP TABLE page_gpu AS SELECT unnest($gpus::INTEGER[]) AS gpu

-- name: make_segments
-- What they did.
CREATE OR REPLACE TEMP TABLE page_segment AS
SELECT segment.* FROM segment JOIN page_gpu USING (gpu)

-- name: count
SELECT count(*) FROM page_segment

-- name: gpus
SELECT gpu, key, rank, gpu.host, part, device.model
FROM gpu JOIN page_gpu USING (gpu) LEFT JOIN device USING (device)
ORDER BY part = 'rollout', rank NULLS LAST, gpu

-- name: steps
SELECT step_id, number, coalesce(step_start_ns, start_ns) AS begin_ns,
  coalesce(step_end_ns, end_ns) AS end_ns
FROM step WHERE number >= 1 ORDER BY begin_ns

-- name: costs
SELECT step_id, count(*) FROM page_segment WHERE step_id IS NOT NULL GROUP BY step_id

-- name: extent
SELECT min(start_ns), max(end_ns) FROM page_segment WHERE step_id = $step

-- name: exact
SELECT gpu, start_ns, end_ns, category FROM page_segment
WHERE end_ns > $first AND start_ns < $last ORDER BY gpu, start_ns

-- name: pieces
-- Of each piece of time, how long each GPU was at what.
WITH piece AS (
  SELECT gpu, category, start_ns, end_ns, (start_ns - $begin) // $width AS a,
    (end_ns - 1 - $begin) // $width AS z
  FROM page_segment
), cut AS (
  SELECT gpu, category, start_ns, end_ns, unnest(range(a, z + 1)) AS bin FROM piece
)
SELECT gpu, bin, category,
  sum(least(end_ns, $begin + (bin + 1) * $width) - greatest(start_ns, $begin + bin * $width))
    ::DOUBLE AS ns
FROM cut GROUP BY gpu, bin, category ORDER BY gpu, bin

-- name: readings
SELECT gpu, (reading.end_ns - 1 - $begin) // $width AS bin, avg(value)
FROM reading JOIN gpu USING (device) JOIN page_gpu USING (gpu)
WHERE counter = $counter AND reading.end_ns > $begin AND reading.end_ns <= $end
GROUP BY gpu, bin

-- name: flight
-- Mean number of sequences in flight in each piece of time.
WITH piece AS (
  SELECT active, start_ns + (bin * ((end_ns - start_ns) / bins))::BIGINT AS start_ns,
    start_ns + ((bin + 1) * ((end_ns - start_ns) / bins))::BIGINT AS end_ns
  FROM (SELECT unit, bin, sum(active) AS active FROM flight GROUP BY unit, bin)
  JOIN rollout USING (unit)
), cut AS (
  SELECT active, start_ns, end_ns, unnest(range(
    greatest(0, (start_ns - $begin) // $width),
    least($pieces, (end_ns - 1 - $begin) // $width + 1))) AS bin
  FROM piece WHERE end_ns > start_ns AND end_ns > $begin
)
SELECT bin, sum(active * (least(end_ns, $begin + (bin + 1) * $width)
  - greatest(start_ns, $begin + bin * $width))) / $width AS active
FROM cut GROUP BY bin ORDER BY bin
