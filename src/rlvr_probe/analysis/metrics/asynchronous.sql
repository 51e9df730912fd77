-- name: trained
-- Trajectories with the step that first trained on them, and how old they were to it.
SELECT sample.*, step.step_id AS trained_id, step.number AS trained,
  step.number - 1 - coalesce(policy_version_min, policy_version) AS lag
FROM sample LEFT JOIN trained USING (batch_id, grp)
JOIN step ON step.step_id = coalesce(
  trained.step_id, CASE WHEN unit >= 0 THEN sample.step_id END)
WHERE superseded_by IS NULL

-- name: lag
SELECT lag AS value, cluster, trajectory_id, trained AS step,
  trained_id AS unit
FROM ({trained})

-- name: waits
-- When ranks fetch data, or wait.
SELECT process, step_id, start_ns, end_ns
FROM kept_span AS span SEMI JOIN (FROM process WHERE rank IS NOT NULL) USING (process)
WHERE name IN ('data', 'wait') AND mode IS DISTINCT FROM 'eval'

-- name: queue_and_lag
SELECT coalesce(bool_or(unit < 0), false),
  coalesce(max(number - 1 - coalesce(policy_version_min, policy_version)), 0)
FROM sample

-- name: mixed
SELECT avg((policy_version_min < policy_version_max)::INTEGER) AS mixed,
  arg_max(trajectory_id, (policy_version_max - policy_version_min, trajectory_id), 20)
    FILTER (policy_version_max - policy_version_min IS NOT NULL) AS widest
FROM sample

-- name: unused
SELECT sum(response_tokens) FILTER (NOT used)
  / nullif(sum(response_tokens) FILTER (used IS NOT NULL), 0)
FROM sample JOIN prompt_group USING (batch_id, grp)

-- name: trainer_wait
SELECT sum(waited) / nullif(sum(whole), 0) AS share, list(process) AS processes FROM (
  SELECT process, ns AS waited FROM ({covered})
) JOIN (
  SELECT process, max(end_ns) - min(start_ns) AS whole FROM kept_span
  WHERE name IN ('step', 'data', 'wait') GROUP BY process
) USING (process)

-- name: rollout_wait
WITH training AS (
  SELECT min(step_start_ns) AS begin_ns, max(step_end_ns) AS until_ns FROM kept_step
), calls AS (
  SELECT 0 AS run, greatest(start_ns, begin_ns) AS start_ns,
    least(end_ns, until_ns) AS end_ns
  FROM (
    SELECT start_ns, end_ns FROM turn UNION ALL SELECT start_ns, end_ns FROM engine_call
  ), training
  WHERE end_ns > begin_ns AND start_ns < until_ns
)
SELECT 1 - sum(ns) / any_value(until_ns - begin_ns)
FROM ({covered}), training

-- name: wait_by_step
SELECT number AS step, sum(ns) / 1e9 / count(DISTINCT process) AS wait,
  any_value(step_end_ns - step_start_ns) / 1e9 AS seconds
FROM ({covered})
JOIN (SELECT step_id, number, step_start_ns, step_end_ns FROM step) USING (step_id)
GROUP BY step_id, number ORDER BY step_id
