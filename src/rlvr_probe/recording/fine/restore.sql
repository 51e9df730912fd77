-- What is joined, as a trace takes it, by number of event or of attempt.
--
-- What there is much of is numbers alone, all known, in columns: n comes first, and -1 or NaN is unknown.

-- name: trajectories
SELECT n, coalesce(t.start_ns, 0), coalesce(t.end_ns, -1), CASE WHEN engines THEN -1 ELSE coalesce(engine, -1) END,
    coalesce(policy_version_min, 0), coalesce(policy_version_max, -1),
    CASE WHEN cuts THEN -1 ELSE coalesce(truncated::BIGINT, -1) END
FROM trajectory t
JOIN q_shard i ON t.trajectory_id BETWEEN i.first AND i.first + i.size - 1
JOIN q_flag USING (n) WHERE keyed OR spans ORDER BY n, t.trajectory_id

-- name: masked
-- A key that is known is that of one trajectory.
CREATE VIEW q_masked AS SELECT n, local, loss_runs
FROM q_joined j JOIN q_shard USING (n) JOIN q_flag USING (n)
JOIN q_trajectory t ON t.p = j.p AND t.span = j.own AND hash(t.key) = j.high
WHERE mask_known AND keyed AND NOT masked

-- name: mask_sizes
SELECT n, len(loss_runs) FROM q_masked ORDER BY n, local

-- name: masks
SELECT n, tokens FROM (
    SELECT n, local, unnest(loss_runs) AS tokens, generate_subscripts(loss_runs, 1) AS place FROM q_masked
) ORDER BY n, local, place

-- name: requests
SELECT attempt, process, start_ns, end_ns, prompt_tokens, response_tokens,
    cached_tokens, queue_s, prefill_s, decode_s, preemptions, finish
FROM q_found ORDER BY number

-- name: turns
SELECT n, (t.trajectory_id - first)::BIGINT AS local, turn, t.start_ns, t.end_ns, prompt_tokens, response_tokens,
    coalesce(cached_tokens, -1) AS cached, -1::BIGINT
FROM turn t JOIN q_shard i ON t.trajectory_id BETWEEN i.first AND i.first + i.size - 1
ORDER BY n, local, turn, t.start_ns, t.end_ns, prompt_tokens, response_tokens, cached

-- name: turns_of_requests
SELECT n, (t.trajectory_id - first)::BIGINT AS local, t.turn, t.start_ns, t.end_ns, prompt_tokens, response_tokens,
    coalesce(cached_tokens, -1) AS cached, coalesce(m.request, -1) AS request
FROM turn t JOIN q_shard i ON t.trajectory_id BETWEEN i.first AND i.first + i.size - 1
LEFT JOIN q_match m ON m.turn = t.number
ORDER BY n, local, t.turn, t.start_ns, t.end_ns, prompt_tokens, response_tokens, cached, request

-- name: tools
SELECT n, c.trajectory_id - first AS local, turn, tool, status, error, c.start_ns, c.end_ns
FROM tool_call c JOIN q_shard i ON c.trajectory_id BETWEEN i.first AND i.first + i.size - 1
ORDER BY n, local, c.start_ns, c.end_ns

-- name: functions
SELECT DISTINCT function FROM verification ORDER BY function

-- name: verifications
SELECT n, v.start_ns, v.process::BIGINT AS process, (v.trajectory_id - first)::BIGINT AS local, v.end_ns,
    coalesce(attempts, -1) AS attempts, coalesce(timeouts, -1) AS timeouts, f.number
FROM verification v JOIN q_shard i ON v.trajectory_id BETWEEN i.first AND i.first + i.size - 1
JOIN (
    SELECT function, dense_rank() OVER (ORDER BY function) - 1 AS number FROM verification GROUP BY function
) f ON f.function = v.function
ORDER BY n, v.start_ns, v.process, local, f.number, v.end_ns, attempts, timeouts

-- name: rewarding
SELECT DISTINCT fn, function FROM reward ORDER BY fn, function

-- name: rewards
-- Where the trainer recorded none, or one function whose calls have times: rows of the event n * many + number.
SELECT i.n::BIGINT * many + f.number, CASE WHEN isfinite(r.value) THEN r.value ELSE 'NaN' END,
    coalesce(isnan(r.value), false)::BIGINT, coalesce(r.verify_s, 'NaN')
FROM reward r JOIN q_shard i ON r.trajectory_id BETWEEN i.first AND i.first + i.size - 1
JOIN (
    SELECT fn, function, dense_rank() OVER (ORDER BY fn, function) - 1 AS number, count(*) OVER () AS many
    FROM reward GROUP BY fn, function
) f ON f.fn = r.fn AND f.function = r.function
WHERE i.n IN (SELECT n FROM q_function WHERE told = 0 OR (told = 1 AND functions = 1 AND NOT timed))
ORDER BY i.n, f.number, r.trajectory_id

-- name: calls
SELECT c.attempt, c.process, c.start_ns, c.end_ns, c.samples, c.response_tokens
FROM engine_call c ORDER BY c.attempt, c.start_ns, c.process, c.end_ns
