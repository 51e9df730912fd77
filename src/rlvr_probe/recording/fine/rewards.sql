-- What reward functions gave: what a trainer told, and what single verifications did.
--
-- Where the trainer told nothing, every function that verified any trajectory of an event has a value,
-- or none, for each of them; given twice, nobody knows which value counted. A value that was given to
-- other trajectories as well has its time with the one that was verified. Where the trainer told the
-- values of one function, and one function verified, these are its times.

-- name: verified
INSERT INTO verification BY NAME
SELECT i.n, i.first + j.local AS trajectory_id, batch_id, m.process, t.function, t.start + shift_ns AS start_ns,
    t.start + t.duration + shift_ns AS end_ns, t.attempts, t.timeouts, t.value
FROM q_verification t JOIN q_place j ON t.p = j.p AND t.batch = j.own JOIN q_shard i USING (n)
JOIN q_member m ON m.p = t.p

-- name: shared
-- What was given to other trajectories too, until rewards are made of it: it has no times.
INSERT INTO verification BY NAME
SELECT i.n, i.first + j.local AS trajectory_id, batch_id, t.function, t.value
FROM (SELECT p, function, value, unnest(shared) AS span FROM q_verification WHERE shared IS NOT NULL) t
JOIN q_place j ON t.p = j.p AND t.span = j.own JOIN q_shard i USING (n)

-- name: functions
-- Functions that verified single trajectories of an event; once: each of them exactly once.
CREATE TABLE q_function AS
SELECT v.n, v.function, i.told, i.timed, row_number() OVER (PARTITION BY v.n ORDER BY v.function) - 1 AS fn,
    v.verified = i.size AND v.those = e.every AS once, count(*) OVER (PARTITION BY v.n) AS functions
FROM (
    SELECT n, function, count(*) AS verified, sum(hash(trajectory_id)) AS those FROM verification
    GROUP BY n, function
) v
JOIN q_shard i USING (n)
JOIN (SELECT n, sum(hash(first + local)) AS every FROM q_joined JOIN q_shard USING (n) GROUP BY n) e USING (n)

-- name: told
INSERT INTO reward
SELECT first + local, batch_id, function, fn, value, verify_s FROM (
    SELECT n, unnest(range(len(given))) AS local, function, fn, unnest(given) AS value, unnest(times) AS verify_s
    FROM q_reward WHERE n NOT IN (SELECT n FROM q_function WHERE told = 1 AND functions = 1 AND NOT timed)
) JOIN q_shard USING (n)
UNION ALL
SELECT first + local, batch_id, a.function, a.fn, a.value, b.took_s FROM (
    SELECT n, unnest(range(len(given))) AS local, q_reward.function, q_reward.fn, unnest(given) AS value
    FROM q_reward JOIN q_function f USING (n) WHERE f.told = 1 AND functions = 1 AND NOT timed
) a JOIN q_shard USING (n) LEFT JOIN (
    SELECT trajectory_id, CASE WHEN count(*) = 1 THEN any_value((end_ns - start_ns) / 1e9) END AS took_s
    FROM verification WHERE n IN (SELECT n FROM q_function WHERE told = 1 AND functions = 1)
    GROUP BY trajectory_id
) b ON b.trajectory_id = first + local

-- name: told_alone
INSERT INTO reward
SELECT first + local, batch_id, function, fn, value, verify_s FROM (
    SELECT n, unnest(range(len(given))) AS local, function, fn, unnest(given) AS value, unnest(times) AS verify_s
    FROM q_reward
) JOIN q_shard USING (n)

-- name: each_once
INSERT INTO reward
SELECT trajectory_id, batch_id, function, fn, v.value, (v.end_ns - v.start_ns) / 1e9
FROM verification v JOIN q_function USING (n, function) WHERE told = 0 AND once

-- name: odd
SELECT count(*) FROM q_function WHERE told = 0 AND NOT once

-- name: not_once
INSERT INTO reward
SELECT i.first + j.local, batch_id, f.function, f.fn, v.value, v.took_s
FROM q_function f JOIN q_joined j USING (n) JOIN q_shard i USING (n) LEFT JOIN (
    SELECT trajectory_id, function, CASE WHEN count(*) = 1 THEN any_value(value) END AS value,
        CASE WHEN count(*) = 1 THEN any_value((end_ns - start_ns) / 1e9) END AS took_s
    FROM verification GROUP BY trajectory_id, function
) v ON v.trajectory_id = i.first + j.local AND v.function = f.function
WHERE f.told = 0 AND NOT f.once
