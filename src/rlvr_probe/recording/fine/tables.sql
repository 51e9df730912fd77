-- The tables that fine rows of journals go to as they are, and what they are joined with.
--
-- p is the number of a process in its FineStore. Times are ns, start since the header of the process was
-- written. n is the number of the event that told of a batch, local a row of it.

-- a trajectory, as the process that generated it tells
CREATE TABLE q_trajectory (
    p INTEGER, span BIGINT, start BIGINT, duration BIGINT, key VARCHAR, engine BIGINT,
    policy_version_min BIGINT, policy_version_max BIGINT, prompt_tokens BIGINT, response_tokens BIGINT,
    truncated BOOLEAN, loss BIGINT, loss_runs UINTEGER[]
);

-- a turn of one trajectory. call is NULL where it was alone in its call of the engine, else it numbers
-- those of its process, which had entries turns. local is its row in the batch, last the highest of
-- the call; whole where none was named: they are all rows
CREATE TABLE q_turn (
    p INTEGER, span BIGINT, start BIGINT, duration BIGINT, call BIGINT, entries BIGINT, last BIGINT,
    batch BIGINT, local BIGINT, whole BOOLEAN, turn BIGINT, prompt_tokens BIGINT,
    response_tokens BIGINT, cached_tokens BIGINT, request VARCHAR, queue_s DOUBLE, prefill_s DOUBLE,
    decode_s DOUBLE, preemptions BIGINT, finish VARCHAR
);

-- a call of a tool
CREATE TABLE q_tool (
    p INTEGER, start BIGINT, duration BIGINT, batch BIGINT, "row" BIGINT, turn BIGINT, tool VARCHAR,
    status VARCHAR, error VARCHAR
);

-- a verification; value is NaN where the function gave no finite number
CREATE TABLE q_verification (
    p INTEGER, start BIGINT, duration BIGINT, batch BIGINT, function VARCHAR, value DOUBLE,
    attempts BIGINT, timeouts BIGINT, shared BIGINT[]
);

-- one side of a request of an engine
CREATE TABLE q_request (
    p INTEGER, parent BIGINT, start BIGINT, duration BIGINT, client BOOLEAN, key VARCHAR,
    request VARCHAR, prompt_tokens BIGINT, response_tokens BIGINT, cached_tokens BIGINT,
    queue_s DOUBLE, prefill_s DOUBLE, decode_s DOUBLE, preemptions BIGINT, finish VARCHAR
);

-- the key of a row of a batch, by two hashes; k numbers batches that have keys
CREATE TABLE q_key (
    k INTEGER, local INTEGER, high UBIGINT, low UBIGINT
);

-- a process that belongs to the run; shift_ns puts its times on the clock of the run
CREATE TABLE q_member (
    p INTEGER, process INTEGER, attempt INTEGER, clock VARCHAR, shift_ns BIGINT
);

-- a process that may schedule what another one, or the same, asks an engine for; timed: by one clock
CREATE TABLE q_serve (
    client INTEGER, scheduler INTEGER, timed BOOLEAN
);

-- an event that told of a batch, or of a shard of one; k is where its keys are
CREATE TABLE q_part (
    n INTEGER, attempt INTEGER, size INTEGER, p INTEGER, clock VARCHAR, told_ns BIGINT, begun_ns BIGINT,
    batch BIGINT, k INTEGER
);

-- a row of it
CREATE TABLE q_batch_row (
    n INTEGER, local INTEGER, prompt_tokens BIGINT, response_tokens BIGINT, cut BIGINT,
    engine BIGINT, grp BIGINT, loss BIGINT, span BIGINT, source VARCHAR
);

-- the same with its attempt, and its key
CREATE TABLE q_row (
    n INTEGER, local INTEGER, attempt INTEGER, prompt_tokens BIGINT, response_tokens BIGINT, cut BIGINT,
    engine BIGINT, grp BIGINT, loss BIGINT, span BIGINT, source VARCHAR, high UBIGINT, low UBIGINT
);

-- the same once it is known to which step it belongs; base is its first row in the batch, first a
-- trajectory_id
CREATE TABLE q_shard (
    n INTEGER, first INTEGER, batch_id INTEGER, step_id INTEGER, mode VARCHAR, process INTEGER,
    base BIGINT, size INTEGER, group_size BIGINT, policy_version BIGINT, start_ns BIGINT, end_ns BIGINT,
    grouped BOOLEAN, engines BOOLEAN, masked BOOLEAN, cuts BOOLEAN, spans BOOLEAN, told INTEGER,
    timed BOOLEAN
);

-- what a trainer told of the rewards of one function
CREATE TABLE q_reward (
    n INTEGER, function VARCHAR, fn BIGINT, given DOUBLE[], times DOUBLE[]
);

-- groups of which is known whether they were kept or used; of a batch where grp is NULL
CREATE TABLE q_chosen (
    batch_id INTEGER, grp BIGINT, kept BOOLEAN, used BOOLEAN
);
