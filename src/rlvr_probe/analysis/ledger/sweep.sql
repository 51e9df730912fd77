-- name: clipped
FROM (SELECT gpu, layer, greatest(start_ns, $begin) AS start_ns,
             least(end_ns, $end, coalesce(until_ns, $end)) AS end_ns
      FROM paint LEFT JOIN ledger_death USING (gpu))
WHERE end_ns > start_ns AND layer IS NOT NULL

-- name: union
-- Intervals of a layer of a GPU, apart from one another: each is there once or not at all.
CREATE OR REPLACE TEMP TABLE painted AS
SELECT gpu, layer, min(start_ns) AS start_ns, max(end_ns) AS end_ns
FROM ({islands})
GROUP BY gpu, layer, island

-- name: cut
-- When each GPU goes on to the next step; one that nobody tells of, with the first who does.
CREATE OR REPLACE TEMP TABLE ledger_cut AS
SELECT gpu, start_ns, arg_max(step_id, number) AS step_id
FROM (SELECT gpu, start_ns, step_id, number FROM ledger_window JOIN gpu_teller USING (process)
      UNION ALL
      SELECT gpu, start_ns, step_id, number FROM
          (SELECT step_id, number, attempt, min(start_ns) AS start_ns FROM ledger_window
           GROUP BY step_id, number, attempt)
      JOIN engine_gpu USING (attempt) WHERE gpu NOT IN (SELECT gpu FROM gpu_teller)
      UNION ALL
      SELECT gpu, start_ns, step_id, number FROM
          (SELECT step_id, number, min(start_ns) AS start_ns FROM ledger_window
           GROUP BY step_id, number),
          gpu WHERE gpu NOT IN (SELECT gpu FROM gpu_teller UNION SELECT gpu FROM engine_gpu))
WHERE start_ns BETWEEN $begin AND $end
GROUP BY gpu, start_ns

-- name: segment
CREATE OR REPLACE TEMP TABLE segment AS
WITH event AS (
    SELECT gpu, start_ns AS at_ns, 1::BIGINT << layer AS change FROM painted
    UNION ALL SELECT gpu, end_ns, -(1::BIGINT << layer) FROM painted
    UNION ALL SELECT gpu, start_ns, 0 FROM ledger_cut
    UNION ALL SELECT gpu, $begin, 0 FROM gpu
    UNION ALL SELECT gpu, $end, 0 FROM gpu
), moment AS (
    SELECT gpu, at_ns, sum(change)::BIGINT AS change FROM event GROUP BY gpu, at_ns
), moved AS (
    SELECT gpu, at_ns AS start_ns, lead(at_ns) OVER cursor AS end_ns,
           (sum(change) OVER cursor)::BIGINT AS layers
    FROM moment WINDOW cursor AS (PARTITION BY gpu ORDER BY at_ns)
), named AS (
    SELECT gpu, start_ns, end_ns,
           CASE WHEN layers > 0 THEN floor(log2(layers))::INTEGER END AS layer
    FROM moved WHERE end_ns IS NOT NULL
)
SELECT named.gpu, coalesce(cut.step_id, first.step_id) AS step_id, named.start_ns, named.end_ns,
       coalesce(layer_name.category, 'unaccounted') AS category
FROM named
ASOF LEFT JOIN ledger_cut cut ON named.gpu = cut.gpu AND named.start_ns >= cut.start_ns
LEFT JOIN (SELECT gpu, arg_min(step_id, start_ns) AS step_id FROM ledger_cut GROUP BY gpu) first
    ON first.gpu = named.gpu
LEFT JOIN ledger_layer layer_name USING (layer)

-- name: paint
CREATE OR REPLACE TEMP TABLE paint (gpu INTEGER, layer INTEGER, start_ns BIGINT, end_ns BIGINT)

-- name: layers
CREATE OR REPLACE TEMP TABLE ledger_layer AS
SELECT unnest($layers) AS layer, unnest($categories) AS category

-- name: death
-- What is told for a rank that died ends with it.
CREATE OR REPLACE TEMP TABLE ledger_death AS
SELECT gpu, max(until_ns) AS until_ns FROM gpu_teller GROUP BY gpu
HAVING bool_and(until_ns IS NOT NULL)
