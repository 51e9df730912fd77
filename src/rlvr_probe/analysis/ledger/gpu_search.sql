-- name: processes
SELECT process, attempt, host, boot, rank, world_size, role
FROM process WHERE attempt IS NOT NULL ORDER BY process

-- name: devices
SELECT process, device, host, boot, how
FROM device_process JOIN device USING (device) WHERE kind <> 'host' ORDER BY process, device

-- name: accelerators
SELECT process, accelerator FROM process_accelerator ORDER BY process, accelerator

-- name: concurrent
WITH a AS (
  SELECT attempt, min(start_ns) AS b, max(last_seen_ns) AS e
  FROM process WHERE attempt IS NOT NULL GROUP BY attempt
)
SELECT count(*) > 0 FROM a JOIN a o ON a.attempt < o.attempt AND a.e > o.b
