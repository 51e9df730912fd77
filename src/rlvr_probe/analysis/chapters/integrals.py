"""What each device did in each stage, from what was read of it, by integrals over time.

Every counter is an amount that grows over pieces of time: what counts up by itself, a share times
the window it is the mean of, a reading between two readings. What a device did from one moment to
another is the difference of two sums, and how much of that time was read is known beside it. A
reading is not extended beyond what it tells: a piece is left out where a counter went back, or
where nothing was read for five periods.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.tables import Tables
from rlvr_probe.model import names
from rlvr_probe.model.counters import COUNTERS

__all__ = ["TABLES", "integrate"]

_LEAVES: Final = tuple(one for one in ("step", *names.STAGES) if one != names.WAIT.name)
_KINDS: Final = {
    kind: ", ".join(f"'{one.name}'" for one in COUNTERS if one.kind == kind)
    for kind in ("total", "window", "gauge")
}
_LIST: Final = ", ".join(f"'{one}'" for one in _LEAVES)

TABLES: Final = {
    "works_on": (
        "GPUs of the stages of a process: those that it works on itself (process), else those of"
        " its job (job), else all of its node (node)",
        """
        WITH own AS (
          SELECT device, process, attempt FROM device_process JOIN process USING (process)
          WHERE how = 'torch'
            OR process IN (SELECT process FROM device_process GROUP BY process HAVING count(*) = 1)
        ), job AS (
          SELECT DISTINCT device, process.process FROM process JOIN own USING (attempt)
          WHERE process.process NOT IN (SELECT process FROM own)
        ), node AS (
          SELECT device, process.process FROM process JOIN device
            ON CASE WHEN process.boot <> '' THEN device.boot = process.boot
              ELSE device.host = process.host END
          WHERE device.kind = 'gpu' AND device.parent IS NULL
            AND process.process NOT IN (SELECT process FROM own UNION SELECT process FROM job)
        )
        SELECT device, process, 'process' AS scope FROM own
        UNION ALL SELECT device, process, 'job' FROM job
        UNION ALL SELECT device, process, 'node' FROM node
        """,
    ),
    "device_stage": (
        "a stage of a finished step on a GPU, once where processes share it",
        f"""
        WITH spans AS (
          SELECT step_id, name AS stage, device, scope, span.start_ns, span.end_ns
          FROM kept_span AS span JOIN works_on USING (process)
          JOIN (SELECT step_id FROM kept_step WHERE done) USING (step_id)
          JOIN device USING (device)
          WHERE device.kind = 'gpu' AND name IN ({_LIST})
            AND (name = 'eval' OR mode IS DISTINCT FROM 'eval')
        ), islands AS (
          SELECT *, sum(begins) OVER (
            PARTITION BY step_id, stage, device ORDER BY start_ns, end_ns ROWS UNBOUNDED PRECEDING
            ) AS island
          FROM (
            SELECT *, coalesce(start_ns > max(end_ns) OVER (
              PARTITION BY step_id, stage, device ORDER BY start_ns, end_ns
              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true)::INTEGER AS begins
            FROM spans
          )
        )
        SELECT step_id, stage, device, min(scope) AS scope, min(start_ns) AS start_ns,
          max(end_ns) AS end_ns
        FROM islands GROUP BY step_id, stage, device, island
        """,
    ),
    "counter_piece": (
        "a piece of time in which a counter of a device grew by an amount, and the sums before it",
        f"""
        WITH pairs AS (
          SELECT device, counter, start_ns, end_ns, value,
            lag(end_ns) OVER line AS last_ns, lag(value) OVER line AS last
          FROM reading WINDOW line AS (PARTITION BY device, counter ORDER BY end_ns)
        ), periods AS (
          SELECT device, counter, 5 * median(end_ns - last_ns) AS limit_ns
          FROM pairs GROUP BY device, counter
        ), pieces AS (
          SELECT device, counter,
            CASE WHEN counter IN ({_KINDS["window"]})
              THEN greatest(start_ns, coalesce(last_ns, start_ns)) ELSE last_ns END AS start_ns,
            end_ns,
            CASE WHEN counter IN ({_KINDS["total"]}) THEN value - last
              WHEN counter IN ({_KINDS["window"]}) THEN value
                * (end_ns - greatest(start_ns, coalesce(last_ns, start_ns)))
              ELSE (value + last) / 2 * (end_ns - last_ns) END AS amount
          FROM pairs JOIN periods USING (device, counter)
          WHERE counter IN ({_KINDS["window"]}) OR end_ns - last_ns <= limit_ns
        )
        SELECT *, coalesce(sum(amount) OVER line, 0) AS amount_before,
          coalesce(sum(end_ns - start_ns) OVER line, 0) AS covered_before
        FROM pieces WHERE end_ns > start_ns AND amount >= 0
        WINDOW line AS (PARTITION BY device, counter ORDER BY start_ns
          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        """,
    ),
    "device_use": (
        "by how much a counter of a GPU grew in a stage, and for how much of the time is known",
        """
        WITH counters AS (
          SELECT DISTINCT device, counter FROM counter_piece
        ), edges AS (
          SELECT step_id, stage, device, start_ns AS edge_ns, -1 AS sign FROM device_stage
          UNION ALL
          SELECT step_id, stage, device, end_ns, 1 FROM device_stage
        ), asked AS (
          SELECT edges.*, counter FROM edges JOIN counters USING (device)
        )
        SELECT step_id, stage, asked.device, asked.counter,
          sum(sign * (amount_before + amount
            * least(1, (edge_ns - start_ns) / (end_ns - start_ns)))) AS amount,
          sum(sign * (covered_before
            + least(edge_ns - start_ns, end_ns - start_ns))) AS covered_ns
        FROM asked ASOF JOIN counter_piece AS piece
          ON asked.device = piece.device AND asked.counter = piece.counter
          AND asked.edge_ns >= piece.start_ns
        GROUP BY step_id, stage, asked.device, asked.counter
        """,
    ),
}
"""By name: what a row is, and the query that makes it."""


def integrate(tables: Tables) -> None:
    """Make the tables of :data:`TABLES`."""
    for name, (_, sql) in TABLES.items():
        tables.sql.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
