-- name: turned
-- What the turns of these trajectories took, and which was longest.
SELECT trajectory_id, sum(ns) AS ns, max(end_ns) AS end_ns,
       arg_max(turn, (ns, turn)) FILTER (ns IS NOT NULL) AS longest
FROM (SELECT *, end_ns - start_ns AS ns FROM turn)
WHERE trajectory_id IN (SELECT trajectory_id FROM last) GROUP BY trajectory_id

-- name: used
-- The same of their tool calls.
SELECT trajectory_id, sum(ns) AS ns,
       arg_max(turn, (ns, turn, tool)) FILTER (ns IS NOT NULL) AS longest,
       arg_max(tool, (ns, turn, tool)) FILTER (ns IS NOT NULL) AS tool
FROM (SELECT *, end_ns - start_ns AS ns FROM tool_call)
WHERE trajectory_id IN (SELECT trajectory_id FROM last) GROUP BY trajectory_id

-- name: lived
-- The trajectory of each batch that was decoded last, and the one that ended last.
CREATE OR REPLACE TEMP TABLE barrier_lived AS
WITH last AS (
    SELECT unnest([decoded_last, told_last]) AS trajectory_id FROM ledger_batch
    WHERE mode = 'train'
), turned AS ({turned}), called AS ({used}), verified AS (
    SELECT trajectory_id,
           arg_max(function, (end_ns, function)) FILTER (end_ns IS NOT NULL) AS function
    FROM verification WHERE trajectory_id IN (SELECT trajectory_id FROM last)
    GROUP BY trajectory_id
)
SELECT DISTINCT trajectory.trajectory_id, batch_id, trajectory.start_ns, trajectory.end_ns, engine,
       turned.end_ns AS decoded_ns, coalesce(called.ns, 0) > turned.ns AS by_tools,
       coalesce(called.ns, 0) AS tools_ns, called.tool,
       turned.longest AS longest_turn, called.longest AS longest_call, function
FROM last JOIN trajectory USING (trajectory_id) JOIN turned USING (trajectory_id)
LEFT JOIN called USING (trajectory_id) LEFT JOIN verified USING (trajectory_id)

-- name: called
-- Barriers of a run with a controller: a GPU waits there from its start on or later.
CREATE OR REPLACE TEMP TABLE barrier AS
WITH cluster AS (
    SELECT stage, cluster, first_ns, arg_max(gpu, (end_ns, gpu)) AS last FROM ledger_cluster
    GROUP BY stage, cluster, first_ns
), every AS (
    SELECT batch.step_id, 'wait.rollout' AS category, batch.start_ns,
           CASE WHEN by_tools THEN 'tool' ELSE 'turn' END AS last_kind, NULL::INTEGER AS gpu,
           engine, trajectory_id,
           CASE WHEN by_tools THEN longest_call ELSE longest_turn END AS turn,
           CASE WHEN by_tools THEN tool END AS name
    FROM ledger_batch batch JOIN barrier_lived lived USING (batch_id, decoded_ns)
    WHERE mode = 'train' AND NOT queued
    UNION ALL BY NAME
    SELECT batch.step_id, 'wait.reward' AS category, batch.decoded_ns AS start_ns,
           'reward' AS last_kind, engine, trajectory_id, longest_turn AS turn, function AS name
    FROM ledger_batch batch JOIN barrier_lived lived USING (batch_id)
    WHERE mode = 'train' AND NOT queued AND lived.end_ns = batch.end_ns
    UNION ALL BY NAME
    SELECT stage.step_id, 'wait.reward' AS category, stage.start_ns, 'reward' AS last_kind
    FROM ledger_stage stage
    WHERE stage.name = 'reward' AND mode = 'train'
      AND process IN (SELECT process FROM gpu_teller WHERE NOT own)
    UNION ALL BY NAME
    SELECT stage.step_id, CASE stage.name WHEN 'rollout' THEN 'wait.rollout'
               WHEN 'reward' THEN 'wait.reward' WHEN 'weight_sync' THEN 'wait.refit'
               ELSE 'wait.update' END AS category,
           first_ns AS start_ns, stage.name AS last_kind, last AS gpu
    FROM cluster JOIN ledger_stage stage USING (stage) WHERE mode = 'train'
)
SELECT row_number() OVER (ORDER BY every.start_ns) AS barrier, attempt, every.*, who.process,
       who.rank
FROM every JOIN step USING (step_id) LEFT JOIN gpu_rank who USING (gpu, attempt)

-- name: waited
CREATE OR REPLACE TEMP TABLE barrier_wait AS
WITH waited AS (
    SELECT segment.step_id, attempt, category, segment.start_ns, sum(segment.end_ns -
               segment.start_ns)::BIGINT AS ns
    FROM segment JOIN step USING (step_id)
    SEMI JOIN (SELECT gpu, attempt FROM gpu_teller WHERE NOT own) USING (gpu, attempt)
    WHERE starts_with(category, 'wait.')
    GROUP BY segment.step_id, attempt, category, segment.start_ns
), placed AS (
    SELECT waited.step_id, waited.category, ns, barrier
    FROM waited ASOF LEFT JOIN barrier ON waited.attempt = barrier.attempt
        AND waited.category = barrier.category AND waited.start_ns >= barrier.start_ns
), summed AS (
    SELECT coalesce(barrier.step_id, placed.step_id) AS step_id, placed.category, barrier,
           sum(ns)::BIGINT AS gpu_ns
    FROM placed LEFT JOIN barrier USING (barrier) GROUP BY ALL
)
SELECT summed.step_id, substr(summed.category, 6) AS barrier, gpu_ns,
       last_kind, process, rank, engine, trajectory_id, turn, name
FROM summed LEFT JOIN barrier USING (barrier)

-- name: own
-- Waiting of ranks that record their own stages; in a rollout, whether it was for a queue, for
-- engines other than theirs, for their own tools, or for other ranks.
CREATE OR REPLACE TEMP TABLE barrier_own AS
WITH decoded AS (
    SELECT step_id, gpu, max(busy.end_ns) AS decoded_ns
    FROM ledger_stage stage JOIN gpu_teller told USING (process)
    JOIN ledger_busy busy ON busy.engine = -2 - stage.process AND busy.end_ns > stage.start_ns
        AND busy.end_ns <= stage.end_ns
    WHERE stage.name = 'rollout' AND stage.mode = 'train' AND told.own
    GROUP BY step_id, gpu
)
SELECT step_id, attempt, gpu, category, segment.start_ns, segment.end_ns,
       segment.end_ns - segment.start_ns AS ns,
       CASE WHEN step_id IN (SELECT step_id FROM queue_group) THEN 'queue'
            WHEN decoded_ns IS NULL THEN 'server'
            WHEN segment.start_ns >= decoded_ns THEN 'others' ELSE 'tools' END AS waits_for
FROM segment JOIN step USING (step_id)
SEMI JOIN (SELECT gpu, attempt FROM gpu_teller WHERE own) USING (gpu, attempt)
LEFT JOIN decoded USING (step_id, gpu)
WHERE starts_with(category, 'wait.')

-- name: tools
-- A rank stood still before, between or behind its calls: for the longest tool of that time, if
-- there was any.
INSERT INTO barrier_wait BY NAME
WITH own AS MATERIALIZED (
    SELECT step_id, attempt, gpu, start_ns, end_ns, ns FROM barrier_own
    WHERE category = 'wait.rollout' AND waits_for = 'tools'
), called AS MATERIALIZED (
    SELECT gpu, trajectory_id, turn, tool, tool_call.start_ns, tool_call.end_ns
    FROM tool_call JOIN trajectory USING (trajectory_id) JOIN gpu_process USING (process)
    WHERE mode = 'train'
), meant AS (
    -- The first and the last wait that a call is open in.
    SELECT called.*, own.start_ns AS from_ns, called.end_ns - called.start_ns AS ns FROM called
    ASOF JOIN own ON called.gpu = own.gpu AND called.start_ns < own.end_ns
    WHERE called.end_ns > own.start_ns
    UNION
    SELECT called.*, own.start_ns AS from_ns, called.end_ns - called.start_ns AS ns FROM called
    ASOF JOIN own ON called.gpu = own.gpu AND called.end_ns > own.start_ns
    WHERE called.start_ns < own.end_ns
)
SELECT own.step_id, 'rollout' AS barrier, any_value(own.ns) AS gpu_ns,
       CASE WHEN count(meant.from_ns) > 0 THEN 'tool' END AS last_kind,
       any_value(who.process) AS process, any_value(who.rank) AS rank,
       -- Nothing of a wait without a tool: there the key is of NULLs.
       arg_max(trajectory_id, (meant.ns, trajectory_id, turn, tool)) AS trajectory_id,
       arg_max(turn, (meant.ns, trajectory_id, turn, tool)) AS turn,
       arg_max(tool, (meant.ns, trajectory_id, turn, tool)) AS name
FROM own LEFT JOIN gpu_rank who USING (gpu, attempt)
LEFT JOIN meant ON meant.gpu = own.gpu AND meant.from_ns = own.start_ns
GROUP BY own.step_id, own.gpu, own.start_ns

-- name: met
-- Ranks meet at the end of their rollouts.
INSERT INTO barrier_wait BY NAME
WITH meant AS (
    SELECT step_id, gpu, coalesce(sum(ns) FILTER (waits_for = 'others'), 0) AS ns
    FROM barrier_own WHERE category = 'wait.rollout' GROUP BY step_id, gpu
), each_gpu AS (
    -- A rank that did not wait has no row of its own.
    SELECT DISTINCT step_id, told.gpu, coalesce(meant.ns, 0) AS ns
    FROM (SELECT DISTINCT step_id FROM meant) JOIN ledger_window USING (step_id)
    JOIN gpu_teller told USING (process) LEFT JOIN meant USING (step_id, gpu)
    WHERE told.own
), met AS (
    SELECT step_id, sum(ns)::BIGINT AS gpu_ns, arg_min(gpu, (ns, gpu)) AS gpu FROM each_gpu
    GROUP BY step_id HAVING sum(ns) > 0
), lived AS (
    SELECT step_id, gpu, trajectory.trajectory_id, max(turn.end_ns) AS decoded_ns,
           coalesce(arg_max(turn.response_tokens, (turn.end_ns, turn.turn))
                        FILTER (turn.end_ns IS NOT NULL), trajectory.response_tokens) AS tokens
    FROM met JOIN gpu_process USING (gpu) JOIN trajectory USING (step_id, process)
    LEFT JOIN turn USING (trajectory_id) WHERE mode = 'train'
    GROUP BY step_id, gpu, trajectory.trajectory_id, trajectory.response_tokens
), called AS (
    SELECT step_id, sum(ns) AS ns,
           arg_max(trajectory_id, (ns, trajectory_id, tool)) FILTER (ns IS NOT NULL)
               AS trajectory_id,
           arg_max(tool, (ns, trajectory_id, tool)) FILTER (ns IS NOT NULL) AS tool
    FROM (SELECT *, end_ns - start_ns AS ns FROM lived JOIN tool_call USING (trajectory_id))
    GROUP BY step_id
), decoded AS (
    SELECT stage.step_id, sum(busy.end_ns - busy.start_ns) AS ns
    FROM met JOIN gpu_process USING (gpu) JOIN ledger_stage stage USING (step_id, process)
    JOIN ledger_busy busy ON busy.engine = -2 - stage.process AND busy.start_ns >= stage.start_ns
        AND busy.end_ns <= stage.end_ns
    WHERE stage.name = 'rollout' AND stage.mode = 'train' GROUP BY stage.step_id
), last AS (
    SELECT step_id, arg_max(trajectory_id, (decoded_ns, tokens, trajectory_id)) AS trajectory_id
    FROM lived GROUP BY step_id
)
SELECT met.step_id, 'rollout' AS barrier, gpu_ns,
       CASE WHEN called.ns > decoded.ns THEN 'tool' ELSE 'turn' END AS last_kind, who.process,
       who.rank,
       CASE WHEN called.ns > decoded.ns THEN called.trajectory_id ELSE last.trajectory_id END
           AS trajectory_id,
       CASE WHEN called.ns > decoded.ns THEN tool END AS name
FROM met JOIN step USING (step_id) LEFT JOIN gpu_rank who USING (gpu, attempt)
LEFT JOIN called USING (step_id) LEFT JOIN decoded USING (step_id) LEFT JOIN last USING (step_id)

-- name: served
-- Ranks that have no engine wait for those that generate for them: for the last trajectory.
INSERT INTO barrier_wait BY NAME
WITH waited AS (
    SELECT step_id, sum(ns)::BIGINT AS gpu_ns FROM barrier_own
    WHERE category = 'wait.rollout' AND waits_for = 'server' GROUP BY step_id
), last AS (
    -- Of those that one call generates, the longest is what it waits for.
    SELECT step_id, arg_max(trajectory_id, (turn.end_ns, coalesce(turn.response_tokens, 0),
                                            trajectory_id)) AS trajectory_id
    FROM trajectory JOIN turn USING (trajectory_id)
    WHERE mode = 'train' AND step_id IN (SELECT step_id FROM waited) AND turn.end_ns IS NOT NULL
    GROUP BY step_id
), turned AS ({turned}), called AS ({used})
SELECT step_id, 'rollout' AS barrier, gpu_ns,
       CASE WHEN called.ns > turned.ns THEN 'tool' WHEN turned.ns IS NOT NULL THEN 'turn' END
           AS last_kind, trajectory_id,
       CASE WHEN called.ns > turned.ns THEN called.longest ELSE turned.longest END AS turn,
       CASE WHEN called.ns > turned.ns THEN tool END AS name
FROM waited LEFT JOIN last USING (step_id) LEFT JOIN turned USING (trajectory_id)
LEFT JOIN called USING (trajectory_id)

-- name: rewarded
CREATE OR REPLACE TEMP TABLE barrier_reward AS
WITH waited AS (
    SELECT step_id, gpu, sum(ns)::BIGINT AS ns FROM barrier_own WHERE category = 'wait.reward'
    GROUP BY step_id, gpu
), made AS (
    SELECT stage.step_id, told.gpu, sum(call.end_ns - call.start_ns)::BIGINT AS ns,
           arg_max(function, (call.end_ns - call.start_ns, function)) AS function
    FROM ledger_stage stage JOIN gpu_teller told USING (process)
    JOIN span call ON call.process = stage.process AND call.name = 'reward_fn'
        AND call.start_ns >= stage.start_ns AND call.end_ns <= stage.end_ns
        AND call.step_id = stage.step_id
    WHERE stage.name = 'reward' AND stage.mode = 'train' GROUP BY stage.step_id, told.gpu
), before AS (
    SELECT reward.step_id, told.gpu, arg_max(stage.name, (stage.end_ns, stage.start_ns)) AS stage
    FROM ledger_stage reward JOIN ledger_stage stage
        ON stage.process = reward.process AND stage.step_id = reward.step_id
       AND stage.end_ns <= reward.start_ns AND stage.mode = 'train'
    JOIN gpu_teller told ON told.process = reward.process
    WHERE reward.name = 'reward' AND reward.mode = 'train' GROUP BY reward.step_id, told.gpu
)
SELECT step_id, gpu, waited.ns, coalesce(least(waited.ns, made.ns), 0) AS made_ns, function,
       coalesce(before.stage, 'reward') AS before
FROM waited LEFT JOIN made USING (step_id, gpu) LEFT JOIN before USING (step_id, gpu)

-- name: gathered
-- Ranks meet where rewards are gathered: one was late before, or its functions took longer.
INSERT INTO barrier_wait BY NAME
WITH last AS (
    SELECT step_id, sum(made_ns)::BIGINT AS made_ns, sum(met_ns)::BIGINT AS met_ns,
           arg_min(gpu, (met_ns, gpu)) AS gpu, arg_min(function, (met_ns, gpu)) AS function,
           arg_min(before, (met_ns, gpu)) AS before,
           -- All leave at the same time: the rank that waited longest in all came first.
           max(ns) - arg_min(ns, (met_ns, gpu)) AS late_ns,
           arg_min(made_ns, (met_ns, gpu)) - min(made_ns) AS slow_ns
    FROM (SELECT *, ns - made_ns AS met_ns FROM barrier_reward) GROUP BY step_id
), named AS (
    SELECT last.*, who.process, who.rank
    FROM last JOIN step USING (step_id) LEFT JOIN gpu_rank who USING (gpu, attempt)
)
SELECT step_id, 'reward' AS barrier, made_ns AS gpu_ns, 'reward' AS last_kind, process, rank,
       function AS name
FROM named WHERE made_ns > 0
UNION ALL BY NAME
SELECT step_id, 'reward' AS barrier, met_ns AS gpu_ns,
       CASE WHEN late_ns > slow_ns THEN before ELSE 'reward' END AS last_kind, process, rank,
       CASE WHEN late_ns > slow_ns THEN NULL ELSE function END AS name
FROM named WHERE met_ns > 0

-- name: starved
-- A trainer waited for its queue: for the last group that it took.
INSERT INTO barrier_wait BY NAME
WITH waited AS (
    SELECT own.step_id, sum(ns)::BIGINT AS gpu_ns FROM barrier_own own
    WHERE category = 'wait.rollout' AND waits_for = 'queue'
    GROUP BY own.step_id
), last AS (
    SELECT step_id, arg_max(batch_id, (scored_ns, batch_id)) AS batch_id,
           max(scored_ns) AS scored_ns
    FROM queue_group WHERE step_id IS NOT NULL GROUP BY step_id
), scored AS (
    SELECT batch_id, arg_max(function, (end_ns - start_ns, function))
               FILTER (end_ns - start_ns IS NOT NULL) AS function
    FROM reward_call GROUP BY batch_id
)
SELECT waited.step_id, 'rollout' AS barrier, gpu_ns,
       CASE WHEN scored_ns - lived.end_ns > lived.end_ns - lived.start_ns THEN 'reward'
            WHEN 2 * tools_ns > lived.end_ns - lived.start_ns THEN 'tool' ELSE 'turn' END AS last_kind,
       lived.engine, trajectory_id,
       CASE last_kind WHEN 'reward' THEN scored.function WHEN 'tool' THEN tool END AS name
FROM waited LEFT JOIN last USING (step_id)
LEFT JOIN (SELECT * FROM barrier_lived
           QUALIFY row_number() OVER (
               PARTITION BY batch_id ORDER BY end_ns DESC, trajectory_id DESC) = 1) lived
    USING (batch_id)
LEFT JOIN scored USING (batch_id)
WHERE gpu_ns > 0

-- name: idle
-- What generates for a queue waited: for the training that takes from it, or for tools.
INSERT INTO barrier_wait BY NAME
SELECT step_id, substr(category, 6) AS barrier, sum(end_ns - start_ns)::BIGINT AS gpu_ns,
       CASE category WHEN 'wait.update' THEN 'update_actor' WHEN 'wait.rollout' THEN 'tool'
           WHEN 'wait.reward' THEN 'reward' END AS last_kind
FROM segment WHERE starts_with(category, 'wait.') AND gpu NOT IN (SELECT gpu FROM gpu_teller)
GROUP BY step_id, category

-- name: held
-- Ranks meet in a collective: the last is whose tensor cores were busiest.
INSERT INTO barrier_wait BY NAME
SELECT step_id, 'update' AS barrier, sum(ns)::BIGINT AS gpu_ns,
       substr(any_value(category), 6) AS last_kind,
       arg_max(who.process, (level, gpu)) FILTER (level IS NOT NULL) AS process,
       arg_max(who.rank, (level, gpu)) FILTER (level IS NOT NULL) AS rank
FROM hidden_wait JOIN step USING (step_id) LEFT JOIN gpu_rank who USING (gpu, attempt)
GROUP BY step_id, category HAVING sum(ns) > 0

-- name: rest
INSERT INTO barrier_wait BY NAME
SELECT step_id, substr(category, 6) AS barrier, sum(ns)::BIGINT AS gpu_ns
FROM barrier_own WHERE category NOT IN ('wait.rollout', 'wait.reward')
GROUP BY step_id, category
