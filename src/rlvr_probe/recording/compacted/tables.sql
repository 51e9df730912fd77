-- What a compacted segment holds: one Parquet file with the columns of this table.

-- a line of a segment, or lines that follow one another, or a row of them in columns
CREATE TABLE segment_row (
    seq BIGINT, -- its line in the segment, the first of several, from 0
    kind VARCHAR, -- rows: lines to decode; rest: a header, sums, what is damaged; else the table its columns go to
    line VARCHAR, -- lines as they are, without the last line feed
    definition BIGINT, -- number of its definition
    parent BIGINT,
    more VARCHAR, -- JSON: its attributes that have no column, in the order of the definition
    -- attributes that are told here as they were, and below as a table takes them
    raw_batch BIGINT, raw_rows BIGINT, raw_truncated BIGINT, raw_loss_runs UINTEGER[], raw_function VARCHAR,
    raw_value DOUBLE, raw_not_finite BIGINT, raw_told_by VARCHAR,
    span BIGINT, start BIGINT, duration BIGINT, error VARCHAR, key VARCHAR, engine BIGINT,
    policy_version_min BIGINT, policy_version_max BIGINT, prompt_tokens BIGINT, response_tokens BIGINT,
    truncated BOOLEAN, loss BIGINT, loss_runs UINTEGER[], batch BIGINT, local BIGINT, whole BOOLEAN, turn BIGINT,
    cached_tokens BIGINT, request VARCHAR, queue_s DOUBLE, prefill_s DOUBLE, decode_s DOUBLE, preemptions BIGINT,
    finish VARCHAR, "row" BIGINT, tool VARCHAR, status VARCHAR, function VARCHAR, value DOUBLE, attempts BIGINT,
    timeouts BIGINT, shared BIGINT[], client BOOLEAN
);
