-- name: work
-- What each rank took for each stage of a step. ``team``: the group of processes, where several
-- have a method of that name, as all models of OpenRLHF have ``forward``; peers are of one team.
-- Groups whose calls overlap are waited for together, and have the same ``wave``. ``together``:
-- ranks end at the same time, but for a constant difference between the clocks of their machines,
-- which is the same at start and end of each stage: a rank that is late by the same time in each
-- step, in one stage, is late.
CREATE OR REPLACE TEMP TABLE cause_work AS
WITH called AS (
    SELECT rpc.step_id, rpc.method AS stage, coalesce(rpc.worker_group, '') AS team, r.process,
           r.rank, sum(r.end_ns - r.start_ns)::BIGINT AS ns, min(r.start_ns) AS start_ns,
           max(r.end_ns) AS end_ns
    FROM kept_rpc AS rpc JOIN rpc_rank AS r USING (rpc_id)
    WHERE rpc.step_id IS NOT NULL
    GROUP BY ALL
), shared AS (
    SELECT DISTINCT stage
    FROM (SELECT stage FROM called GROUP BY step_id, stage HAVING count(DISTINCT team) > 1)
), own AS (
    SELECT s.step_id, s.name AS stage, '' AS team, s.process, p.rank,
           sum(s.end_ns - s.start_ns)::BIGINT AS ns, min(s.start_ns) AS start_ns,
           max(s.end_ns) AS end_ns
    FROM kept_span AS s JOIN process AS p USING (process)
    WHERE s.name IN ('weight_sync', 'old_logprob', 'ref_logprob', 'values', 'update_actor',
                     'update_critic')
      AND s.mode IS DISTINCT FROM 'eval' AND s.step_id IS NOT NULL AND p.rank IS NOT NULL
      AND NOT EXISTS (FROM called)
    GROUP BY ALL
), work AS (
    SELECT * REPLACE (if(stage IN (FROM shared), team, '') AS team)
    FROM (FROM called UNION ALL FROM own)
), wave AS (
    SELECT step_id, stage, team,
           sum(begins::INTEGER) OVER (PARTITION BY step_id, stage ORDER BY start_ns, team) AS wave
    FROM (
        SELECT *, coalesce(start_ns >= max(end_ns) OVER before, false) AS begins
        FROM (SELECT step_id, stage, team, min(start_ns) AS start_ns, max(end_ns) AS end_ns
              FROM work GROUP BY ALL)
        WINDOW before AS (PARTITION BY step_id, stage ORDER BY start_ns, team
                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    )
), late AS (
    SELECT work.*, p.boot, work.start_ns - median(work.start_ns) OVER lap AS begun_ns,
           end_ns - median(end_ns) OVER lap AS late_ns, count(*) OVER lap AS ranks
    FROM work JOIN process AS p USING (process)
    WINDOW lap AS (PARTITION BY step_id, stage, team)
), machine AS (
    SELECT stage, team, boot, median(begun_ns) AS begun_ns, median(late_ns) AS late_ns
    FROM late GROUP BY ALL
), clock AS (
    SELECT boot, median(ns) AS ahead_ns
    FROM (SELECT boot, begun_ns AS ns FROM machine UNION ALL SELECT boot, late_ns FROM machine)
    GROUP BY boot
), steady AS (
    -- A clock that differs explains a delay that is the same at all starts and ends of its machine.
    SELECT late.*, abs(late.late_ns - if(2 * abs(m.late_ns - ahead_ns) < abs(m.late_ns),
                                         m.late_ns, 0)) AS off_ns
    FROM late JOIN machine AS m USING (stage, team, boot) JOIN clock USING (boot)
), held AS (
    SELECT stage, team, quantile_cont(off_ns, 0.9) < 2e-3 * median(ns) AS together
    FROM steady GROUP BY stage, team
)
SELECT step_id, stage, team, wave, process, rank, ns, end_ns, ranks, together
FROM late JOIN held USING (stage, team) JOIN wave USING (step_id, stage, team)

-- name: calls
-- Engine calls of ranks that generate their own rows, one call after another.
CREATE OR REPLACE TEMP TABLE cause_call AS
WITH rollout AS (
    SELECT step_id, process, start_ns, end_ns FROM kept_span
    WHERE name = 'rollout' AND mode IS DISTINCT FROM 'eval' AND step_id IS NOT NULL
), summed AS (
    SELECT r.step_id, c.process, c.start_ns, c.end_ns
    FROM rollout AS r JOIN engine_call AS c
      ON c.process = r.process AND c.start_ns >= r.start_ns AND c.end_ns <= r.end_ns
), single AS (
    SELECT DISTINCT t.step_id, t.process, u.start_ns, u.end_ns
    FROM turn AS u JOIN kept_trajectory AS t USING (trajectory_id)
    WHERE NOT t.own_times AND t.mode = 'train' AND t.step_id IS NOT NULL
)
FROM summed UNION ALL FROM single

-- name: called
-- Calls that a rank waits for itself: of its tools and reward functions, in their stages.
CREATE OR REPLACE TEMP TABLE cause_called AS
SELECT t.step_id, t.process, 'tool' AS part, coalesce(c.tool, '') AS name, c.start_ns, c.end_ns
FROM kept_trajectory AS t JOIN tool_call AS c USING (trajectory_id)
WHERE NOT t.own_times AND t.mode = 'train'
UNION ALL
SELECT b.step_id, c.process, 'reward', coalesce(c.function, ''), c.start_ns, c.end_ns
FROM reward_call AS c JOIN kept_batch AS b USING (batch_id)
JOIN kept_span AS s ON s.step_id = b.step_id AND s.process = c.process
                   AND s.name = 'reward' AND s.mode IS DISTINCT FROM 'eval'
                   AND c.start_ns >= s.start_ns AND c.end_ns <= s.end_ns
WHERE b.mode = 'train' AND NOT b.queued

-- name: other_calls
FROM cause_called WHERE NOT list_contains($names, name)

-- name: parts
-- What each rank took for each part of a lap.
CREATE OR REPLACE TEMP TABLE cause_part AS
WITH worked AS (
    SELECT step_id, process, stage, team, wave, ns FROM cause_work WHERE NOT together
), generated AS (
    SELECT step_id, process, sum(end_ns - start_ns)::BIGINT AS ns FROM cause_call GROUP BY ALL
), waited AS ({waited})
SELECT step_id,
       CASE WHEN NOT EXISTS (FROM generated) THEN concat(stage, ' ', wave)
            WHEN stage = 'weight_sync' THEN 'rollout'
            WHEN stage IN ('old_logprob', 'ref_logprob', 'values') THEN 'reward'
            ELSE stage END AS lap,
       stage, team, 'own' AS part, process, ns
FROM worked
UNION ALL SELECT step_id, 'rollout', 'generation', '', 'own', process, ns FROM generated
UNION ALL
SELECT step_id, 'rollout', 'tools', '', part, process, ns FROM waited WHERE part = 'tool'
UNION ALL
SELECT step_id, 'reward', 'reward functions', '', part, process, ns FROM waited
WHERE part = 'reward'

-- name: laps
CREATE OR REPLACE TEMP TABLE cause_lap AS
SELECT step_id, lap, process,
       coalesce(sum(ns) FILTER (part = 'own'), 0)::BIGINT AS own_ns,
       coalesce(sum(ns) FILTER (part = 'tool'), 0)::BIGINT AS tool_ns,
       coalesce(sum(ns) FILTER (part = 'reward'), 0)::BIGINT AS reward_ns
FROM cause_part GROUP BY ALL

-- name: hidden
-- Stages with a collective; their ranks' shares are taken to be those of their log-probabilities.
CREATE OR REPLACE TEMP TABLE cause_hidden AS
SELECT h.step_id, h.stage, h.team, h.process, h.ns, sum(w.ns)::BIGINT AS weight_ns
FROM cause_work AS h JOIN cause_work AS w USING (step_id, process)
WHERE h.together AND h.ranks > 1 AND NOT w.together
  AND (w.stage LIKE '%log_prob%' OR w.stage LIKE '%logprob%' OR w.stage LIKE '%values%')
  AND h.stage LIKE 'update_%' AND h.stage <> 'update_weights'
GROUP BY ALL

-- name: cause_path
-- Trajectories that go their own way; ``generated_ns`` is neither tools nor verification.
WITH tools AS (
    SELECT trajectory_id, sum(end_ns - start_ns)::BIGINT AS ns FROM tool_call GROUP BY ALL
), verified AS (
    SELECT trajectory_id, sum(end_ns - start_ns)::BIGINT AS ns FROM verification GROUP BY ALL
)
SELECT t.trajectory_id, t.batch_id, t.step_id, t.engine, t.end_ns,
       coalesce(v.ns, 0) AS verify_ns,
       greatest(0, t.end_ns - t.start_ns - coalesce(o.ns, 0) - coalesce(v.ns, 0)) AS generated_ns
FROM kept_trajectory AS t
JOIN kept_batch AS b USING (batch_id)
LEFT JOIN tools AS o USING (trajectory_id)
LEFT JOIN verified AS v USING (trajectory_id)
WHERE t.own_times AND t.mode = 'train' AND NOT b.queued

-- name: hot
-- Steps during which a GPU that a process surely works on was held down by temperature, 5 % of the
-- time, and which one: the counter of each goes up by itself, from wherever it was.
CREATE OR REPLACE TEMP TABLE cause_hot AS
WITH held AS (
    SELECT s.step_id, p.process, device, (s.end_ns - s.start_ns) / 1e9 AS lasted_s,
           arg_max(r.value, (r.end_ns, r.value))
           - arg_min(r.value, (r.end_ns, r.value)) AS held_s
    FROM kept_step AS s
    JOIN reading AS r ON r.end_ns BETWEEN s.start_ns AND s.end_ns
    JOIN gpu AS g USING (device) JOIN gpu_process AS p USING (gpu)
    WHERE r.counter = 'throttle_thermal_s'
    GROUP BY ALL
)
SELECT step_id, process, arg_max(device, (held_s, device)) AS device
FROM held WHERE held_s > 0.05 * lasted_s GROUP BY step_id, process

-- name: last
SELECT b.step_id, barrier, gpu_ns, last_kind, rank, b.engine, trajectory_id, turn, name, t.grp,
       t.sample
FROM barrier_wait AS b LEFT JOIN trajectory AS t USING (trajectory_id)
WHERE b.step_id IN (SELECT unnest($steps::INTEGER[])) AND gpu_ns > 0
QUALIFY row_number() OVER (PARTITION BY b.step_id ORDER BY gpu_ns DESC, barrier,
                           last_kind, trajectory_id, rank) = 1

-- name: numbers
SELECT step_id, number FROM kept_step
