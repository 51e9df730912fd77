-- name: last
-- Of trajectories on their own: how much later than all others of its batch the last one ended, at
-- most by as much as it generated for longer than half of them did.
WITH batches AS (
    SELECT step_id, batch_id,
           max_by(trajectory_id, (end_ns, trajectory_id)) AS trajectory_id, max(end_ns, 2) AS ends,
           max_by(generated_ns, (end_ns, trajectory_id)) - median(generated_ns) AS longer_ns
    FROM cause_path SEMI JOIN prompt_group USING (batch_id) -- of the steps that are asked
    GROUP BY ALL
)
-- One that waited for its tools or its verification is late for another reason.
SELECT step_id, trajectory_id, least(ends[1] - ends[2], greatest(longer_ns, 0))::DOUBLE AS ns
FROM batches WHERE len(ends) = 2

-- name: longest
-- Of ranks that generate their own rows: what the last rank would have been shorter by.
WITH several AS (
    SELECT t.step_id, t.process, u.start_ns, u.trajectory_id,
           sum(u.response_tokens) AS tokens
    FROM kept_trajectory AS t JOIN turn AS u USING (trajectory_id)
    WHERE NOT t.own_times AND t.mode = 'train' GROUP BY ALL
), single AS (
    SELECT t.step_id, t.process, c.start_ns, t.trajectory_id, t.response_tokens AS tokens
    FROM kept_trajectory AS t JOIN cause_call AS c USING (step_id, process)
    WHERE t.mode = 'train' AND NOT EXISTS (FROM several)
), placed AS (
    SELECT *, row_number() OVER (
        PARTITION BY step_id, process, start_ns
        ORDER BY tokens DESC, trajectory_id DESC) AS place
    FROM (FROM several UNION ALL FROM single)
), calls AS (
    SELECT c.step_id, c.process, c.end_ns - c.start_ns AS ns, a.trajectory_id, a.tokens,
           coalesce(b.tokens, 0) AS next_tokens
    FROM cause_call AS c
    JOIN placed AS a USING (step_id, process, start_ns)
    LEFT JOIN placed AS b ON b.step_id = c.step_id AND b.process = c.process
                         AND b.start_ns = c.start_ns AND b.place = 2
    WHERE a.place = 1
), pace AS (
    -- The slope is NaN where all are as long, which is above every number.
    SELECT if(isfinite(slope), greatest(slope, 0), 0) AS ns_per_token
    FROM (SELECT regr_slope(ns, tokens) AS slope FROM calls)
), alone AS (
    SELECT step_id, process, trajectory_id,
           sum(least((tokens - next_tokens) * ns_per_token, ns)) AS ns
    FROM calls, pace GROUP BY ALL
), worst AS (
    SELECT *, row_number() OVER (
        PARTITION BY step_id, process ORDER BY ns DESC, trajectory_id DESC) AS place
    FROM alone
), decoded AS (
    SELECT step_id, process, sum(tokens) AS tokens FROM calls GROUP BY ALL
), ranks AS (
    SELECT l.step_id, l.own_ns + l.tool_ns AS lap_ns, w.trajectory_id, w.ns, d.tokens,
           row_number() OVER (PARTITION BY l.step_id
                              ORDER BY l.own_ns + l.tool_ns DESC, process DESC) AS place
    FROM cause_lap AS l JOIN worst AS w USING (step_id, process)
    JOIN decoded AS d USING (step_id, process)
    WHERE l.lap = 'rollout' AND w.place = 1
)
SELECT a.step_id, a.trajectory_id,
       -- A rank that is later than one with responses as long is late for another reason.
       least(a.ns, a.lap_ns - b.lap_ns, greatest(a.tokens - b.tokens, 0) * ns_per_token)::DOUBLE
       AS ns
FROM ranks AS a JOIN ranks AS b USING (step_id), pace WHERE a.place = 1 AND b.place = 2

-- name: lasting
SELECT count(*) FROM kept_trajectory WHERE mode = 'train' AND response_tokens > 0

-- name: lengths
-- The longest trajectories.
SELECT response_tokens AS tokens, trajectory_id, step_id, batch_id, grp, truncated
FROM kept_trajectory WHERE mode = 'train' AND response_tokens > 0
ORDER BY response_tokens DESC, trajectory_id LIMIT $most

-- name: tails
-- The longest trajectory of each step, the longest that has fewer tokens than those that are apart,
-- and its rollout, ns of wall time.
WITH lengths AS (
    SELECT step_id, max(response_tokens)::DOUBLE AS longest,
           coalesce(max(response_tokens) FILTER (response_tokens < $least), 0)::DOUBLE AS rest
    FROM kept_trajectory WHERE mode = 'train' AND response_tokens > 0 GROUP BY step_id
), rollout AS (
    SELECT step_id, sum(ns)::DOUBLE / (SELECT count(*) FROM gpu) AS ns
    FROM ledger WHERE category IN ('work.rollout', 'wait.rollout') GROUP BY step_id
)
SELECT step_id, longest, rest, ns FROM lengths JOIN rollout USING (step_id)
WHERE NOT (SELECT asynchronous FROM run) ORDER BY step_id

-- name: trajectory
SELECT t.trajectory_id, t.step_id, t.grp, t.sample, t.response_tokens, t.truncated, b.ordinal,
       t.engine, p.rank
FROM trajectory AS t JOIN batch AS b USING (batch_id) LEFT JOIN process AS p USING (process)
WHERE t.trajectory_id = $trajectory

-- name: kept
SELECT count(*) FILTER (g.kept) AS kept, count(*) FILTER (NOT g.kept) AS thrown_away
FROM prompt_group AS g JOIN kept_batch AS b USING (batch_id)
WHERE b.mode = 'train' AND NOT b.queued

-- name: again
-- Wall time of each step after its first generation, until its last one ended.
WITH rounds AS (
    SELECT b.step_id, b.batch_id, b.ordinal, max(t.end_ns) AS end_ns
    FROM kept_batch AS b JOIN kept_trajectory AS t USING (batch_id)
    WHERE b.mode = 'train' AND NOT b.queued AND b.step_id IS NOT NULL GROUP BY ALL
)
SELECT step_id, (max(end_ns) - min_by(end_ns, (ordinal, batch_id)))::DOUBLE AS ns,
       count(*) AS rounds
FROM rounds GROUP BY step_id ORDER BY step_id
