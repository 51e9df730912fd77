-- name: summary
SELECT run, strftime(make_timestamp(epoch_ns // 1000), '%Y-%m-%d %H:%M:%S') AS started,
       framework, framework_version, algorithm, engine,
       (SELECT any_value(facts->>'model_type') FROM session) AS model_type
FROM run
