-- name: series
-- What each of them took in each step, ns. Of reward functions some calls have nothing to do, as
-- where each is for one kind of prompts.
SELECT 'slow_tool' AS kind, c.tool AS place, b.step_id, median(c.end_ns - c.start_ns) AS ns
FROM tool_call AS c JOIN kept_batch AS b USING (batch_id)
WHERE b.mode = 'train' AND c.tool IS NOT NULL AND b.step_id IS NOT NULL GROUP BY ALL
UNION ALL
SELECT 'slow_reward', c.function, b.step_id, quantile_cont(c.end_ns - c.start_ns, 0.9)
FROM reward_call AS c JOIN kept_batch AS b USING (batch_id)
WHERE b.mode = 'train' AND (NOT b.queued OR (SELECT asynchronous FROM run)) AND c.function IS NOT NULL GROUP BY ALL
UNION ALL
SELECT 'slow_reward', v.function, t.step_id, median(v.end_ns - v.start_ns)
FROM verification AS v JOIN cause_path AS t USING (trajectory_id)
WHERE v.function IS NOT NULL GROUP BY ALL
ORDER BY kind, place, step_id
