-- What is joined, as a trace takes it: by number of event, or of attempt.

-- name: trajectories
SELECT n, t.start_ns, t.end_ns, CASE WHEN NOT engines THEN engine END AS engine, policy_version_min AS oldest,
    policy_version_max AS newest, CASE WHEN NOT cuts THEN truncated::BIGINT END AS truncated
FROM trajectory t
JOIN q_shard i ON t.trajectory_id BETWEEN i.first AND i.first + i.size - 1
JOIN q_flag USING (n) WHERE keyed OR spans ORDER BY n, t.trajectory_id

-- name: masks
SELECT n, runs FROM q_joined JOIN q_shard USING (n) JOIN q_flag USING (n)
WHERE mask_known AND keyed AND NOT masked ORDER BY n, local

-- name: requests
SELECT attempt, m.turn IS NOT NULL, process, start_ns, end_ns, prompt, response, cached, queue_s, prefill_s, decode_s,
    preemptions, finish
FROM q_found f LEFT JOIN q_match m ON m.request = f.number ORDER BY f.number

-- name: turns
SELECT n, t.trajectory_id - first AS rows, t.turn AS turns, prompt_tokens, response_tokens, cached_tokens, t.start_ns,
    t.end_ns, -1 AS request
FROM turn t JOIN q_shard i ON t.trajectory_id BETWEEN i.first AND i.first + i.size - 1
ORDER BY n, t.trajectory_id, t.turn, t.start_ns

-- name: turns_of_requests
SELECT n, t.trajectory_id - first AS rows, t.turn AS turns, prompt_tokens, response_tokens, cached_tokens, t.start_ns,
    t.end_ns, m.request
FROM turn t JOIN q_shard i ON t.trajectory_id BETWEEN i.first AND i.first + i.size - 1
LEFT JOIN q_match m ON m.turn = t.number
ORDER BY n, t.trajectory_id, t.turn, t.start_ns

-- name: tools
SELECT n, c.trajectory_id - first AS local, turn, tool, status, error, c.start_ns, c.end_ns
FROM tool_call c JOIN q_shard i ON c.trajectory_id BETWEEN i.first AND i.first + i.size - 1
ORDER BY n, local, c.start_ns, c.end_ns

-- name: verifications
SELECT n, v.function, v.process, v.start_ns, v.end_ns, 1 AS samples, v.trajectory_id - first AS rows, attempts,
    timeouts
FROM verification v JOIN q_shard i ON v.trajectory_id BETWEEN i.first AND i.first + i.size - 1
ORDER BY n, v.start_ns, v.process, v.trajectory_id

-- name: rewards
SELECT f.n, r.fn, r.function, r.value, r.verify_s
FROM reward r JOIN q_shard i ON r.trajectory_id BETWEEN i.first AND i.first + i.size - 1
JOIN (
    SELECT n FROM q_function WHERE told = 0 OR (told = 1 AND functions = 1 AND NOT timed) GROUP BY n
) f ON f.n = i.n
ORDER BY f.n, r.fn, r.function, r.trajectory_id

-- name: calls
SELECT c.attempt, c.process, c.start_ns, c.end_ns, c.samples, c.response_tokens
FROM engine_call c ORDER BY c.attempt, c.start_ns, c.process, c.end_ns
