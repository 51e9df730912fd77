-- name: unit
SELECT count(*), count(device), count(*) FILTER (starts_with(key, 'rank ')) FROM gpu
