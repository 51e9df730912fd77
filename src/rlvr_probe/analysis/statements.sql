-- name: overlap
-- What to group rows by so that those of a group surely overlap, and are one interval: those that
-- start in the same slot of time, and last longer than the slot, whose width is a power of two.
-- That takes no order, and leaves few of very many rows to be sorted.
CASE WHEN end_ns - start_ns > 1 THEN floor(log2(end_ns - start_ns))::INTEGER - 1 END,
start_ns >> coalesce(
  CASE WHEN end_ns - start_ns > 1 THEN floor(log2(end_ns - start_ns))::INTEGER - 1 END, 0)

-- name: quantiles
-- As quantile_cont gives them, of how often there is each value: that holds all values in memory.
SELECT {keys}, quantile, any_value(quantile * last - floor(quantile * last)) AS above,
  min(value) FILTER (upto > floor(quantile * last)) * (1 - above)
  + min(value) FILTER (upto > ceil(quantile * last)) * above AS value
FROM (
  SELECT *, sum(times) OVER (PARTITION BY {keys} ORDER BY value) AS upto,
    sum(times) OVER (PARTITION BY {keys}) - 1 AS last
  FROM {rows}
), (SELECT unnest($quantiles) AS quantile)
GROUP BY {keys}, quantile

-- name: slot
-- The larger, never a lower one: 1,024 between a value and its double.
CASE WHEN value > 0 THEN floor(log2(value) * 1024) ELSE -1e6 END

-- name: coarse
-- How often there is each value, those that no quantile depends on together in slots.
WITH slots AS MATERIALIZED (
  SELECT *, len(list_filter($quantiles,
    lambda share: floor(share * last) < upto AND ceil(share * last) >= upto - times)) > 0 AS asked
  FROM (
    SELECT *, sum(times) OVER (PARTITION BY {keys} ORDER BY slot) AS upto,
      sum(times) OVER (PARTITION BY {keys}) - 1 AS last
    FROM (
      SELECT {keys}, {slot} AS slot, min(value) AS value, count(*) AS times
      FROM {rows} WHERE value IS NOT NULL GROUP BY ALL
    )
  )
)
SELECT {keys}, value, times FROM slots WHERE NOT asked
UNION ALL
SELECT {held}, rows.value, count(*) FROM (SELECT *, {slot} AS slot FROM {rows}) AS rows
JOIN (FROM slots WHERE asked) AS slots ON rows.slot = slots.slot AND {same}
GROUP BY ALL

-- name: islands
SELECT *, count(*) FILTER (before_ns IS NULL OR start_ns > before_ns) OVER (
  PARTITION BY {keys} ORDER BY start_ns, end_ns ROWS UNBOUNDED PRECEDING) AS island
FROM (
  SELECT *, max(end_ns) OVER (
    PARTITION BY {keys} ORDER BY start_ns, end_ns
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
  FROM {rows}
)

-- name: covered
SELECT {keys}, sum(greatest(0, end_ns - greatest(start_ns, before_ns)))::BIGINT AS ns
FROM (
  SELECT *, coalesce(max(end_ns) OVER (
    PARTITION BY {keys} ORDER BY start_ns
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start_ns) AS before_ns
  FROM (
    SELECT {keys}, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM {rows}
    WHERE start_ns IS NOT NULL AND end_ns IS NOT NULL
    GROUP BY {keys}, {overlap}
  )
)
GROUP BY {keys}
