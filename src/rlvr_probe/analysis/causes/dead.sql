-- name: dead
SELECT process, rank, role, last_seen_ns - start_ns AS lived_ns,
       (SELECT max(last_seen_ns) FROM process) - last_seen_ns AS before_ns
FROM process WHERE state = 'died' ORDER BY last_seen_ns, process
