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
-- Time that was spent with each kind of what tensor cores are busy with, until the begin of each
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
    SELECT one.ns, one.end_ns - one.start_ns AS length_ns,
           {spent}
    FROM tensor_read one
    ASOF JOIN tensor_course a ON one.gpu = a.gpu AND one.start_ns >= a.start_ns
    ASOF JOIN tensor_course b ON one.gpu = b.gpu AND one.end_ns >= b.start_ns
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
-- cannot be told from what they did before and after.
CREATE OR REPLACE TEMP TABLE tensor_busy AS
WITH one AS (
    SELECT step_id, gpu, category, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
           sum(end_ns - start_ns)::BIGINT AS ns
    FROM segment WHERE {updates} GROUP BY step_id, gpu, category
), followed AS (
    SELECT *, lag(end_ns) OVER (PARTITION BY gpu ORDER BY start_ns) AS previous_ns FROM one
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
    -- A reading that the update before it ends in may be one of waiting: nobody waits when an
    -- update begins, so that it can be left out.
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
       greatest(0, tensor_ns
           - if(spent.forward = 0, 0, spent.forward * level.forward)
           - if(spent.decodes = 0, 0, spent.decodes * level.decodes)
           - if(spent.evaluates = 0, 0, spent.evaluates * level.evaluates)
           - if(spent.others = 0, 0, spent.others * level.others)) / updates AS level
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
