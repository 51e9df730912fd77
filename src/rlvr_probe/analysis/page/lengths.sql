-- name: steps
SELECT count(DISTINCT step_id) FROM trajectory WHERE coalesce(mode, 'train') = 'train'

-- name: make_bars
-- Steps with trajectories, several that follow one another together.
CREATE OR REPLACE TEMP TABLE page_length_step AS
SELECT step_id, number,
  (row_number() OVER (ORDER BY start_ns NULLS LAST, number, step_id) - 1) // $together AS bar
FROM step WHERE superseded_by IS NULL AND step_id IN (
  SELECT step_id FROM trajectory WHERE coalesce(mode, 'train') = 'train'
)

-- name: bars
SELECT min(number), max(number) FROM page_length_step GROUP BY bar ORDER BY bar

-- name: classes
SELECT bar, CASE WHEN response_tokens < 1 THEN 0
    ELSE floor($classes * log2(response_tokens))::INTEGER END AS class,
  count(*) AS trajectories
FROM trajectory JOIN page_length_step USING (step_id)
WHERE coalesce(mode, 'train') = 'train' AND response_tokens IS NOT NULL
GROUP BY bar, class ORDER BY bar, class

-- name: cap
SELECT max_response_tokens FROM run
