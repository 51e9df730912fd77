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
