-- name: hosts
SELECT count(DISTINCT host) FROM process WHERE host <> ''

-- name: lost
SELECT reason, sum(rows)::BIGINT AS rows FROM lost
GROUP BY reason HAVING sum(rows) > 0 ORDER BY rows DESC
