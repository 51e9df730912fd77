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
-- When each GPU goes on to the next step; one without recorded stages, with the first that has.
CREATE OR REPLACE TEMP TABLE ledger_cut AS
SELECT gpu, start_ns, arg_max(step_id, (number, step_id)) AS step_id
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
LEFT JOIN (SELECT gpu, arg_min(step_id, (start_ns, step_id)) AS step_id FROM ledger_cut
           GROUP BY gpu) first
    ON first.gpu = named.gpu
LEFT JOIN ledger_layer layer_name USING (layer)

-- name: paint
CREATE OR REPLACE TEMP TABLE paint (gpu INTEGER, layer INTEGER, start_ns BIGINT, end_ns BIGINT)

-- name: layers
CREATE OR REPLACE TEMP TABLE ledger_layer AS
SELECT unnest($layers) AS layer, unnest($categories) AS category

-- name: death
-- What others recorded for a rank that died ends with it.
CREATE OR REPLACE TEMP TABLE ledger_death AS
SELECT gpu, max(until_ns) AS until_ns FROM gpu_teller GROUP BY gpu
HAVING bool_and(until_ns IS NOT NULL)

-- name: read
-- Time for which tensor cores were busy in each reading, and until its end.
CREATE OR REPLACE TEMP TABLE tensor_read AS
SELECT gpu, reading.start_ns, reading.end_ns, value * (reading.end_ns - reading.start_ns) AS ns,
       sum(value * (reading.end_ns - reading.start_ns)) OVER so_far AS tensor_ns,
       sum(reading.end_ns - reading.start_ns) OVER so_far AS read_ns
FROM reading JOIN gpu USING (device)
WHERE counter = 'tensor_active' AND reading.end_ns > reading.start_ns
WINDOW so_far AS (PARTITION BY gpu ORDER BY reading.end_ns)

-- name: updates
category IN ('work.update_actor', 'work.update_critic')

-- name: course
-- Time that was spent with each kind of what tensor cores are busy with, until the start of each
-- segment; in all else they are idle.
CREATE OR REPLACE TEMP TABLE tensor_course AS
WITH kind AS (
    SELECT gpu, start_ns, end_ns - start_ns AS ns, {updates} AS in_updates,
           category IN ('work.old_logprob', 'work.ref_logprob', 'work.values') AS in_forward,
           category = 'work.rollout' AS in_decodes, category = 'eval' AS in_evaluates,
           category = 'work.other' AS in_others
    FROM segment WHERE gpu IN (SELECT gpu FROM tensor_read)
)
SELECT * EXCLUDE (ns), coalesce(sum(ns) FILTER (in_updates) OVER before, 0)::BIGINT AS updates,
       coalesce(sum(ns) FILTER (in_forward) OVER before, 0)::BIGINT AS forward,
       coalesce(sum(ns) FILTER (in_decodes) OVER before, 0)::BIGINT AS decodes,
       coalesce(sum(ns) FILTER (in_evaluates) OVER before, 0)::BIGINT AS evaluates,
       coalesce(sum(ns) FILTER (in_others) OVER before, 0)::BIGINT AS others
FROM kind
WINDOW before AS (PARTITION BY gpu ORDER BY start_ns
                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)

-- name: spent
-- Time with each kind from a moment in the segment a to one in b.
b.updates + if(b.in_updates, {until_ns} - b.start_ns, 0)
    - a.updates - if(a.in_updates, {from_ns} - a.start_ns, 0) AS updates,
b.forward + if(b.in_forward, {until_ns} - b.start_ns, 0)
    - a.forward - if(a.in_forward, {from_ns} - a.start_ns, 0) AS forward,
b.decodes + if(b.in_decodes, {until_ns} - b.start_ns, 0)
    - a.decodes - if(a.in_decodes, {from_ns} - a.start_ns, 0) AS decodes,
b.evaluates + if(b.in_evaluates, {until_ns} - b.start_ns, 0)
    - a.evaluates - if(a.in_evaluates, {from_ns} - a.start_ns, 0) AS evaluates,
b.others + if(b.in_others, {until_ns} - b.start_ns, 0)
    - a.others - if(a.in_others, {from_ns} - a.start_ns, 0) AS others

-- name: level
-- Mean activity with each kind, from readings of at least a half of it and of nothing else.
CREATE OR REPLACE TEMP TABLE tensor_level AS
WITH used AS (
    SELECT reading.ns, reading.end_ns - reading.start_ns AS length_ns,
           {spent}
    FROM tensor_read reading
    ASOF JOIN tensor_course a ON reading.gpu = a.gpu AND reading.start_ns >= a.start_ns
    ASOF JOIN tensor_course b ON reading.gpu = b.gpu AND reading.end_ns >= b.start_ns
), alone AS (
    SELECT *, updates + forward + decodes + evaluates + others AS busy_ns FROM used
    WHERE 2 * busy_ns > length_ns
)
SELECT sum(ns) FILTER (forward = busy_ns) / sum(forward) FILTER (forward = busy_ns) AS forward,
       sum(ns) FILTER (decodes = busy_ns) / sum(decodes) FILTER (decodes = busy_ns) AS decodes,
       sum(ns) FILTER (evaluates = busy_ns) / sum(evaluates) FILTER (evaluates = busy_ns)
           AS evaluates,
       sum(ns) FILTER (others = busy_ns) / sum(others) FILTER (others = busy_ns) AS others
FROM alone

-- name: busy
-- Mean activity of tensor cores in the update of a GPU, over what was read of it; NULL where it
-- cannot be separated from what they did before and after.
CREATE OR REPLACE TEMP TABLE tensor_busy AS
WITH stretch AS (
    SELECT step_id, gpu, category, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
           sum(end_ns - start_ns)::BIGINT AS ns
    FROM segment WHERE {updates} GROUP BY step_id, gpu, category
), followed AS (
    SELECT *, lag(end_ns) OVER (PARTITION BY gpu ORDER BY start_ns) AS previous_ns FROM stretch
), edged AS (
    SELECT followed.*, before.end_ns AS before_ns, inside.end_ns AS inside_ns,
           coalesce(after.end_ns, last.end_ns) AS b_ns, before.tensor_ns AS before_tensor_ns,
           inside.tensor_ns AS inside_tensor_ns, before.read_ns AS before_read_ns,
           inside.read_ns AS inside_read_ns,
           -- Of the last update the end may not have been read.
           coalesce(after.tensor_ns, last.tensor_ns) AS b_tensor_ns,
           coalesce(after.read_ns, last.read_ns) AS b_read_ns
    FROM followed
    ASOF LEFT JOIN tensor_read before
        ON followed.gpu = before.gpu AND followed.start_ns >= before.end_ns
    ASOF LEFT JOIN tensor_read inside
        ON followed.gpu = inside.gpu AND followed.start_ns <= inside.end_ns
    ASOF LEFT JOIN tensor_read after
        ON followed.gpu = after.gpu AND followed.end_ns <= after.end_ns
    ASOF JOIN tensor_read last ON followed.gpu = last.gpu AND followed.end_ns >= last.end_ns
), read AS (
    -- A reading that the update before it ends in may be one of waiting: no rank waits when an
    -- update starts, so that it can be omitted.
    SELECT step_id, gpu, category, b_ns,
           CASE WHEN clean THEN before_ns ELSE inside_ns END AS a_ns,
           b_tensor_ns - CASE WHEN clean THEN before_tensor_ns ELSE inside_tensor_ns END
               AS tensor_ns,
           b_read_ns - CASE WHEN clean THEN before_read_ns ELSE inside_read_ns END AS read_ns
    FROM (SELECT *, coalesce(before_ns >= previous_ns, before_ns IS NOT NULL) AS clean FROM edged)
), spent AS (
    SELECT read.*, {spent}
    FROM read
    ASOF JOIN tensor_course a ON read.gpu = a.gpu AND read.a_ns >= a.start_ns
    ASOF JOIN tensor_course b ON read.gpu = b.gpu AND read.b_ns >= b.start_ns
)
SELECT step_id, gpu, category, updates AS ns,
       tensor_ns - if(spent.forward = 0, 0, spent.forward * level.forward)
           - if(spent.decodes = 0, 0, spent.decodes * level.decodes)
           - if(spent.evaluates = 0, 0, spent.evaluates * level.evaluates)
           - if(spent.others = 0, 0, spent.others * level.others) AS own_ns,
       if(own_ns < 0, 0, own_ns / updates) AS level
FROM spent, tensor_level level WHERE read_ns >= 0.9 * (b_ns - a_ns) AND updates > 0

-- name: hidden
CREATE OR REPLACE TEMP TABLE hidden_wait AS
WITH compared AS (
    SELECT *, max(level) OVER of_update AS most, count(level) OVER of_update AS known,
           count(*) OVER of_update AS gpus
    FROM tensor_busy WINDOW of_update AS (PARTITION BY step_id, category)
)
SELECT step_id, gpu, category, level, (ns * (1 - level / most))::BIGINT AS ns
FROM compared WHERE most > 0 AND known = gpus

-- name: engine
-- One without a number is that of the process, or else a server.
coalesce(engine, CASE WHEN home.process IS NULL THEN -1 ELSE -2 - home.process END)

-- name: thrown
-- Tokens of what was thrown away, by batch, engine and why.
CREATE OR REPLACE TEMP TABLE ledger_thrown AS
WITH discarded AS (
    SELECT trajectory_id, trajectory.batch_id, trajectory.process, engine, response_tokens,
           CASE WHEN queued AND trajectory.step_id IS NULL THEN 'discarded.stale'
                WHEN NOT passed.kept THEN 'discarded.filtered'
                WHEN NOT passed.used THEN 'discarded.surplus'
                ELSE 'discarded.truncated' END AS why
    FROM trajectory JOIN batch USING (batch_id)
    LEFT JOIN (SELECT * FROM prompt_group WHERE NOT kept OR NOT used) passed
        USING (batch_id, grp)
    WHERE trajectory.mode = 'train' AND (
        (queued AND trajectory.step_id IS NULL) OR passed.batch_id IS NOT NULL
        OR (truncated AND loss_tokens = 0))
), made AS (
    SELECT trajectory_id, sum(response_tokens) AS tokens FROM turn
    WHERE trajectory_id IN (SELECT trajectory_id FROM discarded) GROUP BY trajectory_id
)
SELECT batch_id, attempt, {engine} AS engine, why,
       sum(coalesce(made.tokens, response_tokens)) AS tokens
FROM discarded LEFT JOIN made USING (trajectory_id) JOIN process USING (process)
LEFT JOIN ledger_home home USING (process)
GROUP BY ALL

-- name: total
-- Tokens of all trajectories, by batch and engine.
CREATE OR REPLACE TEMP TABLE ledger_total AS
SELECT batch_id, attempt, engine, sum(tokens) AS tokens FROM ledger_call
WHERE batch_id IS NOT NULL GROUP BY batch_id, attempt, engine
UNION ALL
SELECT batch_id, attempt, {engine} AS engine, sum(response_tokens)
FROM trajectory JOIN process USING (process) LEFT JOIN ledger_home home USING (process)
WHERE batch_id NOT IN (SELECT batch_id FROM ledger_call WHERE batch_id IS NOT NULL)
  AND (batch_id IN (SELECT batch_id FROM ledger_thrown)
       OR batch_id IN (SELECT batch_id FROM queue_group))
GROUP BY ALL

-- name: discarded
INSERT INTO ledger_move
WITH busy AS (
    SELECT batch_id, attempt, engine, sum(end_ns - start_ns) AS ns FROM ledger_busy
    WHERE batch_id IS NOT NULL GROUP BY batch_id, attempt, engine
    UNION ALL
    -- A call that records a sum belongs to the rollout that it lies in.
    SELECT thrown.batch_id, thrown.attempt, thrown.engine, sum(busy.end_ns - busy.start_ns)
    FROM (SELECT DISTINCT batch_id, attempt, engine FROM ledger_thrown) thrown
    JOIN batch USING (batch_id)
    JOIN ledger_stage stage ON stage.step_id = batch.step_id AND stage.name = 'rollout'
        AND stage.mode = 'train' AND thrown.engine = -2 - stage.process
    JOIN ledger_busy busy ON busy.attempt = thrown.attempt AND busy.engine = thrown.engine
        AND busy.batch_id IS NULL AND busy.start_ns >= stage.start_ns
        AND busy.start_ns < stage.end_ns
    GROUP BY thrown.batch_id, thrown.attempt, thrown.engine
), home AS (
    SELECT attempt, engine, gpu FROM engine_gpu
    UNION ALL
    SELECT attempt, -2 - process, gpu FROM gpu_process JOIN process USING (process)
)
SELECT batch.step_id, home.gpu, 'work.rollout', why,
       sum(thrown.tokens / total.tokens * busy.ns)::BIGINT
FROM ledger_thrown thrown JOIN ledger_total total USING (batch_id, attempt, engine)
JOIN busy USING (batch_id, attempt, engine) JOIN home USING (attempt, engine)
JOIN batch USING (batch_id)
WHERE NOT queued AND total.tokens > 0
GROUP BY batch.step_id, home.gpu, why

-- name: queued
-- Behind a queue it is the share of the whole run: its groups are generated at the same time.
INSERT INTO ledger_move
WITH held AS (
    SELECT engine_gpu.gpu, attempt, sum(end_ns - start_ns) AS ns
    FROM segment JOIN engine_gpu USING (gpu) WHERE category = 'work.rollout'
    GROUP BY engine_gpu.gpu, attempt
), whole AS (
    SELECT attempt, sum(tokens) AS tokens FROM ledger_total
    WHERE batch_id IN (SELECT batch_id FROM queue_group) GROUP BY attempt
), share AS (
    SELECT thrown.attempt, taken_by, why, sum(thrown.tokens) / any_value(whole.tokens) AS share
    FROM ledger_thrown thrown JOIN queue_group USING (batch_id)
    JOIN whole ON whole.attempt = thrown.attempt
    WHERE whole.tokens > 0 AND taken_by IS NOT NULL
    GROUP BY thrown.attempt, taken_by, why
)
SELECT taken_by, gpu, 'work.rollout', why, (share * ns)::BIGINT
FROM share JOIN held USING (attempt)

-- name: count
SELECT count(*) FROM ledger_thrown

-- name: probe
INSERT INTO ledger_move
SELECT step_id, gpu, 'bubble', 'overhead.probe',
       (least(1.0, own_s * 1e9 / nullif(last_seen_ns - process.start_ns, 0))
        * (here.end_ns - here.start_ns))::BIGINT
FROM gpu_teller JOIN process USING (process) JOIN ledger_window here USING (process)
WHERE own_s > 0

-- name: waited
INSERT INTO ledger_move
SELECT step_id, gpu, category, 'wait.update', ns FROM hidden_wait WHERE ns > 0

-- name: cells
CREATE OR REPLACE TEMP TABLE ledger AS
WITH cell AS (
    SELECT step_id, gpu, category, sum(end_ns - start_ns)::BIGINT AS ns
    FROM segment GROUP BY step_id, gpu, category
), wanted AS (
    SELECT step_id, gpu, was, becomes, sum(ns) AS ns FROM ledger_move
    GROUP BY step_id, gpu, was, becomes
), move AS (
    -- No more can be called something else than there is.
    SELECT wanted.step_id, wanted.gpu, was, becomes,
           greatest(0, least(wanted.ns, cell.ns - coalesce(sum(wanted.ns) OVER (
               PARTITION BY wanted.step_id, wanted.gpu, was ORDER BY becomes
               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)))::BIGINT AS ns
    FROM wanted JOIN cell ON cell.step_id = wanted.step_id AND cell.gpu = wanted.gpu
        AND cell.category = was
), every AS (
    SELECT step_id, gpu, category, ns FROM cell
    UNION ALL SELECT step_id, gpu, was, -ns FROM move
    UNION ALL SELECT step_id, gpu, becomes, ns FROM move
)
SELECT step_id, gpu,
       CASE WHEN superseded_by IS NOT NULL AND category <> 'unaccounted' THEN 'discarded.redone'
            ELSE category END AS category,
       sum(ns)::BIGINT AS ns
FROM every LEFT JOIN step USING (step_id)
GROUP BY ALL HAVING sum(ns) <> 0

-- name: moves
CREATE OR REPLACE TEMP TABLE ledger_move (
    step_id INTEGER, gpu INTEGER, was VARCHAR, becomes VARCHAR, ns BIGINT)
