-- How fine rows are joined with the rows of batches: one statement after each "-- name:".
--
-- A row of a batch is (n, local): the number of the event that told it, and its place in there. A
-- row of a process is (p, ...). ok: a trajectory is known to be that row, and no other one.

-- name: hashes
-- Of a key: both together stand for it in less room.
CREATE MACRO q_high(key) AS CASE WHEN key IS NOT NULL THEN hash(key) END;
CREATE MACRO q_low(key) AS CASE WHEN key IS NOT NULL THEN hash('#' || key) END

-- name: rows
INSERT INTO q_row
SELECT r.n, r.local, attempt, prompt_tokens, response_tokens, cut, engine, grp, loss, span, source, high, low
FROM q_batch_row r JOIN q_part USING (n) LEFT JOIN q_key k ON k.k = q_part.k AND k.local = r.local

-- name: alone
-- Trajectories as who generated them tells; narrow: a key that names one rollout of one manager only.
CREATE VIEW q_alone AS
SELECT m.attempt, m.clock, p, span AS own, start + shift_ns AS start_ns, start + duration + shift_ns AS end_ns,
    q_high(key) AS high, q_low(key) AS low, starts_with(key, '-') AS narrow,
    engine, policy_version_min, policy_version_max, prompt_tokens, response_tokens, truncated, loss
FROM q_trajectory JOIN q_member m USING (p)

-- name: joined
-- A key is accepted where it was told once on either side, at a time and with lengths that agree.
-- Between two machines both ends of a trajectory may be off by as much as their clocks.
CREATE TABLE q_joined AS
SELECT r.* EXCLUDE (low, span), t.p, t.own, t.start_ns, t.end_ns, t.engine AS served, policy_version_min, policy_version_max,
    t.truncated AS stopped, t.loss AS kept, t.own IS NOT NULL
    AND (t.prompt_tokens IS NULL OR t.prompt_tokens = r.prompt_tokens)
    AND (t.response_tokens IS NULL OR t.response_tokens = r.response_tokens)
    AND CASE
        WHEN NOT narrow AND t.clock <> s.clock THEN true
        WHEN CASE WHEN t.clock = s.clock THEN t.end_ns
             ELSE (t.start_ns + t.end_ns - ((t.start_ns + t.end_ns) % 2 + 2) % 2) // 2 END > s.told_ns THEN false
        ELSE NOT narrow OR coalesce(CASE WHEN t.clock = s.clock THEN t.start_ns
             ELSE (t.start_ns + t.end_ns - ((t.start_ns + t.end_ns) % 2 + 2) % 2) // 2 END >= s.begun_ns, false)
    END AS ok
FROM q_alone t
RIGHT JOIN (FROM q_row WHERE span IS NULL) r ON r.high = t.high AND r.low = t.low AND r.attempt = t.attempt
JOIN q_part s USING (n)

-- name: by_span
-- Rows that name the span of their trajectory, which is of the process that tells of them.
INSERT INTO q_joined BY NAME
SELECT r.* EXCLUDE (low, span), s.p, r.span AS own, t.start + shift_ns AS start_ns, t.start + t.duration + shift_ns AS end_ns, true AS ok
FROM q_row r JOIN q_part s USING (n) JOIN q_member m ON m.p = s.p
LEFT JOIN q_trajectory t ON t.p = s.p AND t.span = r.span
WHERE r.span IS NOT NULL

-- name: doubtful
-- Whether any row or trajectory with a key has none, or several, of the other side.
SELECT (SELECT (count(high), sum(hash(n, local)) FILTER (high IS NOT NULL)) FROM q_row)
    IS DISTINCT FROM (count(own) FILTER (high IS NOT NULL),
        sum(hash(n, local)) FILTER (high IS NOT NULL AND own IS NOT NULL))
    OR (SELECT (count(*), sum(hash(p, own))) FROM q_alone WHERE high IS NOT NULL)
    IS DISTINCT FROM (count(own) FILTER (high IS NOT NULL),
        sum(hash(p, own)) FILTER (high IS NOT NULL AND own IS NOT NULL))
FROM q_joined

-- name: twice
CREATE TABLE q_twice AS
SELECT attempt, high FROM q_row WHERE high IS NOT NULL GROUP BY ALL HAVING count(*) > 1

-- name: contested
CREATE TABLE q_contested AS
SELECT n, local, min(rowid) AS first FROM q_joined
WHERE high IS NOT NULL GROUP BY n, local
HAVING count(*) > 1 OR any_value((attempt, high)) IN (SELECT (attempt, high) FROM q_twice)

-- name: claims
SELECT attempt, count(*) FROM q_joined
WHERE high IS NOT NULL AND own IS NOT NULL AND (attempt, high) NOT IN (SELECT (attempt, high) FROM q_twice)
GROUP BY attempt

-- name: settle
DELETE FROM q_joined USING q_contested b
WHERE q_joined.n = b.n AND q_joined.local = b.local AND q_joined.rowid <> b.first

-- name: refuse
UPDATE q_joined SET ok = false FROM q_contested b WHERE q_joined.n = b.n AND q_joined.local = b.local

-- name: unjoined
SELECT attempt, count(high) - count(*) FILTER (high IS NOT NULL AND ok) FROM q_joined
GROUP BY attempt

-- name: told_alone
SELECT attempt, count(*) FROM q_alone WHERE high IS NOT NULL GROUP BY attempt

-- name: flags
-- What must be known of every row of an event to be said of any.
CREATE TABLE q_flag AS
SELECT n, count(high) > 0 AS keyed, bool_and(ok) AND count(*) = count(stopped) AS cut_known,
    bool_and(ok) AND count(*) = count(kept) AS mask_known
FROM q_joined GROUP BY n

-- name: places
-- Of two rows that name one span, the later.
CREATE TABLE q_place AS
SELECT p, own, n, local FROM q_joined WHERE ok
QUALIFY row_number() OVER (PARTITION BY p, own ORDER BY n DESC, local DESC) = 1

-- name: places_apart
CREATE TABLE q_place AS SELECT p, own, n, local FROM q_joined WHERE ok

-- name: trajectories
INSERT INTO trajectory
SELECT i.first + local, batch_id, step_id, mode, process, base + local,
    CASE WHEN grouped THEN grp ELSE (base + local) // group_size END,
    CASE WHEN grouped THEN NULL ELSE (base + local) % group_size END, prompt_tokens, response_tokens,
    CASE WHEN masked THEN loss WHEN mask_known AND keyed THEN kept END, NULL,
    CASE WHEN cuts THEN cut <> 0 WHEN cut_known AND keyed THEN stopped END,
    CASE WHEN engines THEN engine WHEN ok AND keyed THEN served END, policy_version,
    CASE WHEN ok AND keyed THEN policy_version_min END, CASE WHEN ok AND keyed THEN policy_version_max END,
    CASE WHEN NOT (keyed OR spans) THEN i.start_ns WHEN ok THEN j.start_ns END,
    CASE WHEN NOT (keyed OR spans) THEN i.end_ns WHEN ok THEN j.end_ns END,
    CASE WHEN NOT (keyed OR spans) THEN CASE WHEN i.start_ns IS NOT NULL THEN false END
        WHEN ok AND j.start_ns IS NOT NULL THEN true END, source
FROM q_joined j JOIN q_shard i USING (n) JOIN q_flag USING (n)

-- name: samples
-- Where groups are told row by row, a sample's place is among those of its group.
UPDATE trajectory SET sample = s.place FROM (
    SELECT trajectory_id, row_number() OVER (PARTITION BY batch_id, grp ORDER BY trajectory_id) - 1 AS place
    FROM trajectory
) s WHERE s.trajectory_id = trajectory.trajectory_id AND sample IS NULL

-- name: groups
INSERT INTO prompt_group
SELECT g.batch_id, g.grp,
    CASE WHEN NOT ragged THEN group_size WHEN total = rows THEN held ELSE greatest(group_size, held + 1) END,
    held, coalesce(c.kept, o.kept), coalesce(c.used, o.used)
FROM (SELECT batch_id, grp, count(*) AS held FROM trajectory GROUP BY batch_id, grp) g
JOIN batch USING (batch_id)
LEFT JOIN q_chosen c ON c.batch_id = g.batch_id AND c.grp = g.grp
LEFT JOIN q_chosen o ON o.batch_id = g.batch_id AND o.grp IS NULL

-- name: trained
INSERT INTO trained SELECT step_id, batch_id, grp FROM prompt_group JOIN batch USING (batch_id)
WHERE step_id IS NOT NULL AND (used OR (queued AND used IS NULL))

-- name: only
-- Batches of one process: their event, where there is one.
CREATE TABLE q_only AS
SELECT p, batch, min(n) AS n, any_value(size) AS size, count(*) > 1 AS split
FROM q_part WHERE batch <> 0 GROUP BY p, batch

-- name: numbered
CREATE VIEW q_numbered_turn AS SELECT *, rowid AS number FROM q_turn

-- name: turns
-- Of trajectories that have a span of their own.
INSERT INTO turn BY NAME
SELECT i.first + j.local AS trajectory_id, batch_id, t.turn, t.prompt_tokens, t.response_tokens, t.cached_tokens,
    t.start + shift_ns AS start_ns, t.start + t.duration + shift_ns AS end_ns, t.duration / 1e9 AS took_s,
    t.number
FROM q_numbered_turn t JOIN q_place j ON t.p = j.p AND t.batch = j.own JOIN q_shard i USING (n) JOIN q_member m ON m.p = t.p
WHERE coalesce(entries, 1) = 1

-- name: other_turns
-- What belongs to no trajectory that has a span: to a row of a batch, or to none.
CREATE TABLE q_other_turn AS
SELECT t.*, t.rowid AS number, hash(t.p, coalesce(call, -1 - t.rowid)) AS call_id,
    CASE WHEN NOT split THEN o.n END AS n, coalesce(split, false) AS split, j.p IS NOT NULL AS misfit,
    CASE WHEN whole THEN coalesce(entries, 1) = size ELSE coalesce(last, t.local) < size END AS fits
FROM q_turn t LEFT JOIN q_only o ON o.p = t.p AND o.batch = t.batch
LEFT JOIN q_place j ON j.p = t.p AND j.own = t.batch
WHERE j.p IS NULL OR coalesce(entries, 1) <> 1

-- name: turns_of_batches
INSERT INTO turn BY NAME
SELECT i.first + l.local AS trajectory_id, batch_id, turn, prompt_tokens, response_tokens, cached_tokens,
    l.start + shift_ns AS start_ns, l.start + l.duration + shift_ns AS end_ns, l.duration / 1e9 AS took_s, number
FROM q_other_turn l JOIN q_member USING (p) JOIN q_shard i USING (n) WHERE fits AND NOT misfit

-- name: loose_turns
INSERT INTO engine_call
SELECT attempt, process, start + shift_ns, start + duration + shift_ns, count(*), sum(response_tokens)
FROM q_other_turn JOIN q_member USING (p) WHERE n IS NULL AND NOT misfit
GROUP BY attempt, process, call_id, start, duration, shift_ns

-- name: wrong_turns
SELECT attempt, count(DISTINCT call_id) FROM q_other_turn JOIN q_member USING (p)
WHERE misfit OR split OR (n IS NOT NULL AND NOT fits) GROUP BY attempt

-- name: tools
INSERT INTO tool_call BY NAME
SELECT i.first + j.local AS trajectory_id, batch_id, t.turn, t.tool, t.status, t.error, t.start + shift_ns AS start_ns,
    t.start + t.duration + shift_ns AS end_ns, t.duration / 1e9 AS took_s
FROM q_tool t JOIN q_place j ON t.p = j.p AND t.batch = j.own JOIN q_shard i USING (n) JOIN q_member m ON m.p = t.p

-- name: other_tools
CREATE TABLE q_other_tool AS
SELECT t.*, CASE WHEN NOT split THEN o.n END AS n, coalesce(split, false) AS split, t.row < size AS fits
FROM q_tool t LEFT JOIN q_only o ON o.p = t.p AND o.batch = t.batch
ANTI JOIN q_place j ON j.p = t.p AND j.own = t.batch

-- name: tools_of_batches
INSERT INTO tool_call BY NAME
SELECT i.first + l.row AS trajectory_id, batch_id, turn, tool, status, error, l.start + shift_ns AS start_ns,
    l.start + l.duration + shift_ns AS end_ns, l.duration / 1e9 AS took_s
FROM q_other_tool l JOIN q_member USING (p) JOIN q_shard i USING (n) WHERE fits

-- name: wrong_tools
SELECT attempt, count(*) FROM q_other_tool JOIN q_member USING (p)
WHERE split OR (n IS NOT NULL AND NOT fits) GROUP BY attempt
