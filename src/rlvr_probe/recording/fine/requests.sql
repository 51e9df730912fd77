-- How requests of engines are put together of what their two sides tell, and joined with turns.
--
-- The process that asks an engine and the one that schedules its work each tell what they know of a
-- request. A pair is joined only if neither of the two could be of another one.

-- name: any_told
SELECT count(*) FROM q_turn
WHERE coalesce(queue_s, prefill_s, decode_s, preemptions) IS NOT NULL OR finish IS NOT NULL

-- name: sides
CREATE TABLE q_side AS
SELECT r.rowid AS side, r.*, m.attempt, m.process, m.clock, start + m.shift_ns AS start_ns,
    start + duration + m.shift_ns AS end_ns
FROM q_request r JOIN q_member m USING (p)

-- name: asked
CREATE TABLE q_asked AS
SELECT attempt, key, count(*) FILTER (client) AS asked, count(*) FILTER (NOT client) AS scheduled
FROM q_side WHERE key IS NOT NULL GROUP BY attempt, key

-- name: pairs
-- Where there is one of its key on either side, it may be given up before its engine takes it.
CREATE TABLE q_pair AS
SELECT c.side AS client, s.side AS scheduler
FROM q_side c
JOIN q_side s ON c.client AND NOT s.client AND s.attempt = c.attempt AND s.key = c.key
JOIN q_asked a ON a.attempt = c.attempt AND a.key = c.key
JOIN q_serve v ON v.client = c.p AND v.scheduler = s.p
WHERE NOT v.timed OR (
    c.start_ns <= s.start_ns AND (s.start_ns <= c.end_ns OR (a.asked = 1 AND a.scheduled = 1))
)
QUALIFY count(*) OVER (PARTITION BY c.side) = 1 AND count(*) OVER (PARTITION BY s.side) = 1

-- name: found
-- Lengths and end as they were asked for, times as they were scheduled.
CREATE TABLE q_found AS
SELECT row_number() OVER (ORDER BY c.attempt, NOT c.client, c.process, c.end_ns, c.start_ns, c.side) - 1 AS number,
    c.attempt, c.p, c.process, c.clock, c.parent, c.request,
    c.start_ns, c.end_ns, coalesce(c.prompt_tokens, s.prompt_tokens) AS prompt_tokens,
    coalesce(c.response_tokens, s.response_tokens) AS response_tokens,
    coalesce(s.cached_tokens, c.cached_tokens) AS cached_tokens, coalesce(s.queue_s, c.queue_s) AS queue_s,
    coalesce(s.prefill_s, c.prefill_s) AS prefill_s, coalesce(s.decode_s, c.decode_s) AS decode_s,
    coalesce(s.preemptions, c.preemptions) AS preemptions, coalesce(c.finish, s.finish) AS finish
FROM q_side c LEFT JOIN q_pair p ON p.client = c.side LEFT JOIN q_side s ON s.side = p.scheduler
LEFT JOIN q_asked a ON a.attempt = c.attempt AND a.key = c.key
WHERE c.client OR (c.side NOT IN (SELECT scheduler FROM q_pair) AND coalesce(a.asked, 0) = 0)

-- name: unserved
-- Rows of schedulers that are of a request which is known from its client: nobody can tell of which.
SELECT attempt, count(*) FROM q_side JOIN q_asked a USING (attempt, key)
WHERE NOT client AND side NOT IN (SELECT scheduler FROM q_pair) AND a.asked > 0 GROUP BY attempt

-- name: placed
CREATE TABLE q_placed AS
SELECT t.*, t.rowid AS number, m.attempt, m.process, m.clock, start + shift_ns AS begin_ns,
    start + duration + shift_ns AS until_ns
FROM q_turn t JOIN q_member m USING (p) WHERE call IS NULL AND t.rowid IN (SELECT number FROM turn)

-- name: by_parent
-- The request was open in its turn, or has its name and time.
CREATE TABLE q_match AS
SELECT t.number AS turn, f.number AS request FROM q_placed t JOIN q_found f ON f.p = t.p AND f.parent = t.span

-- name: by_name
INSERT INTO q_match
SELECT t.number, f.number FROM q_placed t JOIN q_found f ON f.attempt = t.attempt AND f.request = t.request
WHERE t.number NOT IN (SELECT turn FROM q_match) AND f.number NOT IN (SELECT request FROM q_match)
    AND (f.clock <> t.clock OR (t.begin_ns <= f.start_ns AND f.end_ns <= t.until_ns))

-- name: matched
CREATE OR REPLACE TABLE q_match AS
SELECT turn, request FROM q_match
QUALIFY count(*) OVER (PARTITION BY turn) = 1 AND count(*) OVER (PARTITION BY request) = 1

-- name: told
-- What is known from a turn alone.
CREATE TABLE q_told AS
SELECT (SELECT count(*) FROM q_found) + row_number() OVER (ORDER BY attempt, process, until_ns, number) - 1 AS request,
    number AS turn
FROM q_placed WHERE number NOT IN (SELECT turn FROM q_match)
    AND (coalesce(queue_s, prefill_s, decode_s, preemptions) IS NOT NULL OR finish IS NOT NULL)

-- name: told_found
INSERT INTO q_found
SELECT q_told.request, attempt, p, process, clock, NULL, NULL, begin_ns, until_ns, prompt_tokens, response_tokens,
    cached_tokens, queue_s, prefill_s, decode_s, preemptions, finish
FROM q_told JOIN q_placed ON number = q_told.turn

-- name: told_matched
INSERT INTO q_match SELECT turn, request FROM q_told

-- name: unjoined
SELECT attempt, count(*) FROM q_found WHERE number NOT IN (SELECT request FROM q_match) GROUP BY attempt

-- name: requests
INSERT INTO request
SELECT attempt, process, start_ns, end_ns, prompt_tokens, response_tokens, cached_tokens, queue_s, prefill_s,
    decode_s, preemptions, finish
FROM q_found ORDER BY number

-- name: served
UPDATE turn SET queue_s = f.queue_s, prefill_s = f.prefill_s, decode_s = f.decode_s,
    preemptions = f.preemptions, finish = f.finish
FROM q_match m JOIN q_found f ON f.number = m.request WHERE m.turn = turn.number
