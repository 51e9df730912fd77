-- name: series
-- What all GPUs spent on each stage of each step, waits included, ns of wall time. Rollout beside
-- the training has no step of its own, what waits for it is another's cause, and time is that of the
-- GPUs that train.
-- What waits for a rank that is still in an earlier stage is of that one.
WITH of_stage AS (
    SELECT unnest($categories::VARCHAR[]) AS category, unnest($stages::VARCHAR[]) AS stage
), taken AS (
    SELECT step_id, gpu, stage, ns FROM ledger JOIN of_stage USING (category)
    WHERE NOT (category IN ('wait.update', 'wait.rollout', 'work.rollout')
               AND (SELECT asynchronous FROM run))
    UNION ALL
    SELECT step_id, NULL, unnest([here.stage, earlier.stage]), unnest([-gpu_ns, gpu_ns])
    FROM barrier_wait JOIN of_stage AS here ON here.category = 'wait.' || barrier
    JOIN of_stage AS earlier ON earlier.category = 'work.' || last_kind
    WHERE earlier.stage <> here.stage AND NOT (SELECT asynchronous FROM run)
)
SELECT stage, step_id,
       sum(ns) / if((SELECT asynchronous FROM run), count(DISTINCT gpu),
                    (SELECT count(*) FROM gpu)) AS ns
FROM taken JOIN kept_step USING (step_id) WHERE number >= 1
GROUP BY ALL HAVING sum(taken.ns) > 0 ORDER BY stage, step_id

-- name: tokens
-- Tokens of a step that time may follow: prompts and responses, responses, the longest of them; the
-- first two of the engine, or else the rank, that has most; and those that last longest: an engine
-- decodes until its longest response ends, slower the more others it decodes beside it. Rows that a
-- rank generates together wait in every turn for the longest of it.
WITH turns AS (
    SELECT t.mode, t.step_id, coalesce(t.engine, -1 - t.process) AS place,
           max(u.response_tokens) AS longest
    FROM kept_trajectory AS t JOIN turn AS u USING (trajectory_id)
    WHERE NOT t.own_times AND u.start_ns IS NOT NULL
    GROUP BY t.mode, t.step_id, place, u.start_ns
), together AS (SELECT mode, step_id, place, sum(longest) AS longest FROM turns GROUP BY ALL)
SELECT mode, step_id, sum(context) AS context, sum(responses) AS responses,
       max(longest) AS longest, max(context) AS most_context, max(responses) AS most_responses,
       max(longest + responses / 32) AS crowded, max(longest + responses / 256) AS spacious
FROM (
    SELECT mode, step_id, sum(coalesce(prompt_tokens, 0) + response_tokens)::DOUBLE AS context,
           sum(response_tokens)::DOUBLE AS responses,
           coalesce(any_value(t.longest), max(response_tokens))::DOUBLE AS longest
    FROM (SELECT *, coalesce(engine, -1 - process) AS place FROM kept_trajectory)
    LEFT JOIN together AS t USING (mode, step_id, place)
    WHERE response_tokens IS NOT NULL AND step_id IS NOT NULL GROUP BY mode, step_id, place
) GROUP BY ALL

-- name: starts
-- First step of each session.
SELECT min_by(step_id, (start_ns, step_id)) AS step_id FROM kept_step WHERE number >= 1
GROUP BY attempt, session

-- name: steps
-- Finished steps, and the wall time of each, by the ledger, ns.
SELECT step_id, number, sum(ns)::DOUBLE / (SELECT count(*) FROM gpu) AS ns
FROM ledger JOIN kept_step USING (step_id) WHERE done AND number >= 1
GROUP BY ALL ORDER BY step_id
