-- name: response
SELECT response_tokens AS value, hash(batch_id, grp) AS cluster, trajectory_id
FROM sample JOIN prompt_group USING (batch_id, grp) WHERE {condition}

-- name: shares
SELECT count(coalesce(kept, used)) AS groups, count(*) FILTER (kept) AS kept,
  count(*) FILTER (used) AS used,
  count(*) FILTER (kept) / nullif(count(kept), 0) AS kept_share,
  count(*) FILTER (used) / nullif(count(used), 0) AS used_share,
  sum(tokens) FILTER (NOT used) / nullif(sum(tokens) FILTER (used IS NOT NULL), 0)
    AS unused_tokens
FROM prompt_group JOIN (
  SELECT batch_id, grp, sum(response_tokens) AS tokens FROM sample GROUP BY batch_id, grp
) USING (batch_id, grp)
WHERE kept IS NOT NULL OR used IS NOT NULL

-- name: by_step
SELECT number AS step, count(DISTINCT batch_id) AS batches, count(*) AS groups,
  count(*) FILTER (kept) AS kept, count(*) FILTER (used) AS used
FROM prompt_group JOIN sample_batch USING (batch_id) GROUP BY number ORDER BY number
