-- What is joined, as a trace takes it, by number of event or of attempt.
--
-- What there is much of comes as one list of numbers in JSON, row after row: DuckDB sorts it and hands it over
-- in less time than values one by one. -1 is unknown there.

-- name: trajectories
SELECT n, to_json(flatten(list_sort(list([
    t.trajectory_id, coalesce(t.start_ns, 0), coalesce(t.end_ns, -1), CASE WHEN engines THEN -1 ELSE coalesce(engine, -1) END,
    coalesce(policy_version_min, 0), coalesce(policy_version_max, -1),
    CASE WHEN cuts THEN -1 ELSE coalesce(truncated::BIGINT, -1) END
]))))
FROM trajectory t
JOIN q_shard i ON t.trajectory_id BETWEEN i.first AND i.first + i.size - 1
JOIN q_flag USING (n) WHERE keyed OR spans GROUP BY n ORDER BY n

-- name: masks
-- A key that is known is that of one trajectory.
SELECT n, to_json(flatten(list(loss_runs ORDER BY local))), to_json(list(len(loss_runs) ORDER BY local))
FROM q_joined j JOIN q_shard USING (n) JOIN q_flag USING (n)
JOIN q_trajectory t ON t.p = j.p AND t.span = j.own AND hash(t.key) = j.high
WHERE mask_known AND keyed AND NOT masked GROUP BY n ORDER BY n

-- name: requests
SELECT attempt, m.turn IS NOT NULL, process, start_ns, end_ns, prompt_tokens, response_tokens,
    cached_tokens, queue_s, prefill_s, decode_s, preemptions, finish
FROM q_found f LEFT JOIN q_match m ON m.request = f.number ORDER BY f.number

-- name: turns
SELECT n, to_json(flatten(list_sort(list([
    t.trajectory_id - first, turn, t.start_ns, t.end_ns, prompt_tokens, response_tokens, coalesce(cached_tokens, -1), -1
]))))
FROM turn t JOIN q_shard i ON t.trajectory_id BETWEEN i.first AND i.first + i.size - 1 GROUP BY n ORDER BY n

-- name: turns_of_requests
SELECT n, to_json(flatten(list_sort(list([
    t.trajectory_id - first, t.turn, t.start_ns, t.end_ns, prompt_tokens, response_tokens, coalesce(cached_tokens, -1),
    coalesce(m.request, -1)
]))))
FROM turn t JOIN q_shard i ON t.trajectory_id BETWEEN i.first AND i.first + i.size - 1
LEFT JOIN q_match m ON m.turn = t.number GROUP BY n ORDER BY n

-- name: tools
SELECT n, c.trajectory_id - first AS local, turn, tool, status, error, c.start_ns, c.end_ns
FROM tool_call c JOIN q_shard i ON c.trajectory_id BETWEEN i.first AND i.first + i.size - 1
ORDER BY n, local, c.start_ns, c.end_ns

-- name: verifications
SELECT n, function, to_json(flatten(list_sort(list([
    v.start_ns, v.process, v.trajectory_id - first, v.end_ns, coalesce(attempts, -1), coalesce(timeouts, -1)
]))))
FROM verification v JOIN q_shard i ON v.trajectory_id BETWEEN i.first AND i.first + i.size - 1
GROUP BY n, function ORDER BY n, function

-- name: rewards
-- JSON has no NaN: its places are beside the values.
SELECT f.n, r.fn, r.function, to_json(list(CASE WHEN isfinite(r.value) THEN r.value END ORDER BY r.trajectory_id)),
    to_json(list(r.trajectory_id - i.first ORDER BY r.trajectory_id) FILTER (isnan(r.value))),
    to_json(list(r.verify_s ORDER BY r.trajectory_id))
FROM reward r JOIN q_shard i ON r.trajectory_id BETWEEN i.first AND i.first + i.size - 1
JOIN (
    SELECT n FROM q_function WHERE told = 0 OR (told = 1 AND functions = 1 AND NOT timed) GROUP BY n
) f ON f.n = i.n
GROUP BY f.n, r.fn, r.function ORDER BY f.n, r.fn, r.function

-- name: calls
SELECT c.attempt, c.process, c.start_ns, c.end_ns, c.samples, c.response_tokens
FROM engine_call c ORDER BY c.attempt, c.start_ns, c.process, c.end_ns
