-- name: calls
SELECT tool AS name, unit, number AS step, took_s AS seconds, tool_call.start_ns, tool_call.end_ns,
  1 AS samples, trajectory_id, process
FROM tool_call JOIN sample USING (trajectory_id)

-- name: trajectory_s
SELECT coalesce(seconds, 0) AS value, cluster, trajectory_id, number AS step, unit
FROM sample SEMI JOIN turn USING (trajectory_id)
LEFT JOIN (
  SELECT trajectory_id, sum(took_s) AS seconds FROM tool_call GROUP BY trajectory_id
) USING (trajectory_id)
WHERE EXISTS (FROM tool_call)

-- name: call_s
SELECT took_s AS value, cluster, trajectory_id, number AS step, unit
FROM tool_call JOIN sample USING (trajectory_id)

-- name: queries
SELECT queries AS value, cluster, trajectory_id
FROM tool_call JOIN sample USING (trajectory_id)

-- name: count
SELECT count(*) FROM tool_call

-- name: trajectory_share
SELECT tools / (tools + turns) AS share FROM
  (SELECT sum(took_s) AS tools FROM tool_call SEMI JOIN sample_batch USING (batch_id)),
  (SELECT sum(took_s) AS turns FROM turn SEMI JOIN sample_batch USING (batch_id))

-- name: outcomes
SELECT coalesce(tool, '(unknown)') AS tool, {what} AS what, count(*) AS count,
  min(trajectory_id, 20) AS trajectories
FROM tool_call SEMI JOIN sample_batch USING (batch_id)
WHERE {what} IS NOT NULL GROUP BY ALL ORDER BY count DESC, 1, 2 LIMIT 100
