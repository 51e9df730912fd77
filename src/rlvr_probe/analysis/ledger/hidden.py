"""Waiting inside a collective: to spans it looks like work, to tensor cores it does not.

Ranks that reduce gradients together end their updates together, and which of them was late is not
in their spans. A GPU that waits in a collective runs a kernel, and its tensor cores are idle. So
the rank whose tensor cores were busiest, over its update, is taken to have worked all the time, and
the others as much less as theirs were. Readings that reach beyond an update are corrected by what
readings show while nothing but one other thing computes.
"""

from __future__ import annotations

from typing import Final

from rlvr_probe.recording.tables import Tables

__all__ = ["find_hidden"]

_KINDS: Final = {
    "updates": ("work.update_actor", "work.update_critic"),
    "forward": ("work.old_logprob", "work.ref_logprob", "work.values"),
    "decodes": ("work.rollout",),
    "evaluates": ("eval",),
    "others": ("work.other",),
}
"""What tensor cores are busy with, each kind in its own way; in all else they are idle."""
_REST: Final = tuple(kind for kind in _KINDS if kind != "updates")


def _in(kind: str) -> str:
    return f"category IN ({', '.join(repr(one) for one in _KINDS[kind])})"


_READ = """
CREATE OR REPLACE TEMP TABLE tensor_read AS
SELECT gpu, reading.start_ns, reading.end_ns, value * (reading.end_ns - reading.start_ns) AS ns,
       sum(value * (reading.end_ns - reading.start_ns)) OVER so_far AS tensor_ns,
       sum(reading.end_ns - reading.start_ns) OVER so_far AS read_ns
FROM reading JOIN gpu USING (device)
WHERE counter = 'tensor_active' AND reading.end_ns > reading.start_ns
WINDOW so_far AS (PARTITION BY gpu ORDER BY reading.end_ns)
"""
"""Time for which tensor cores were busy in each reading, and until its end."""

_COURSE = f"""
CREATE OR REPLACE TEMP TABLE tensor_course AS
SELECT gpu, start_ns,
       {", ".join(f"{_in(kind)} AS in_{kind}" for kind in _KINDS)},
       {
    ", ".join(
        f"coalesce(sum(CASE WHEN {_in(kind)} THEN end_ns - start_ns ELSE 0 END) OVER before, 0)"
        f"::BIGINT AS {kind}"
        for kind in _KINDS
    )
}
FROM segment WHERE gpu IN (SELECT gpu FROM tensor_read)
WINDOW before AS (PARTITION BY gpu ORDER BY start_ns
                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
"""
"""Time that was spent with each kind until the begin of each segment."""


def _until(course: str, moment: str, kind: str) -> str:
    """Time spent with ``kind`` until ``moment``, which lies in the segment ``course``."""
    inside = f"CASE WHEN {course}.in_{kind} THEN {moment} - {course}.start_ns ELSE 0 END"
    return f"({course}.{kind} + {inside})"


def _between(kind: str, first: str, last: str) -> str:
    return f"{_until('b', last, kind)} - {_until('a', first, kind)} AS {kind}"


_LEVEL = f"""
CREATE OR REPLACE TEMP TABLE tensor_level AS
WITH used AS (
    SELECT one.ns, one.end_ns - one.start_ns AS length_ns,
           {", ".join(_between(kind, "one.start_ns", "one.end_ns") for kind in _KINDS)}
    FROM tensor_read one
    ASOF JOIN tensor_course a ON one.gpu = a.gpu AND one.start_ns >= a.start_ns
    ASOF JOIN tensor_course b ON one.gpu = b.gpu AND one.end_ns >= b.start_ns
)
SELECT {
    ", ".join(
        f"(sum(ns) FILTER ({only}) / sum({kind}) FILTER ({only})) AS {kind}"
        for kind in _REST
        for only in [
            " AND ".join(
                [f"2 * {kind} > length_ns", *(f"{other} = 0" for other in _KINDS if other != kind)]
            )
        ]
    )
}
FROM used
"""
"""Mean activity with each kind, from readings of at least a half of it and of nothing else."""

_BUSY = f"""
CREATE OR REPLACE TEMP TABLE tensor_busy AS
WITH one AS (
    SELECT step_id, gpu, category, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
           sum(end_ns - start_ns)::BIGINT AS ns
    FROM segment WHERE {_in("updates")} GROUP BY step_id, gpu, category
), followed AS (
    SELECT *, lag(end_ns) OVER (PARTITION BY gpu ORDER BY start_ns) AS previous_ns FROM one
), edged AS (
    SELECT followed.*, before.end_ns AS before_ns, inside.end_ns AS inside_ns,
           coalesce(after.end_ns, last.end_ns) AS b_ns, before.tensor_ns AS before_tensor_ns,
           inside.tensor_ns AS inside_tensor_ns, before.read_ns AS before_read_ns,
           inside.read_ns AS inside_read_ns,
           -- Of the last update the end may not have been read.
           coalesce(after.tensor_ns, last.tensor_ns) AS b_tensor_ns,
           coalesce(after.read_ns, last.read_ns) AS b_read_ns
    FROM followed
    ASOF LEFT JOIN tensor_read before
        ON followed.gpu = before.gpu AND followed.start_ns >= before.end_ns
    ASOF LEFT JOIN tensor_read inside
        ON followed.gpu = inside.gpu AND followed.start_ns <= inside.end_ns
    ASOF LEFT JOIN tensor_read after
        ON followed.gpu = after.gpu AND followed.end_ns <= after.end_ns
    ASOF JOIN tensor_read last ON followed.gpu = last.gpu AND followed.end_ns >= last.end_ns
), read AS (
    -- A reading that the update before it ends in may be one of waiting: nobody waits when an
    -- update begins, so that it can be left out.
    SELECT step_id, gpu, category, b_ns,
           CASE WHEN clean THEN before_ns ELSE inside_ns END AS a_ns,
           b_tensor_ns - CASE WHEN clean THEN before_tensor_ns ELSE inside_tensor_ns END
               AS tensor_ns,
           b_read_ns - CASE WHEN clean THEN before_read_ns ELSE inside_read_ns END AS read_ns
    FROM (SELECT *, coalesce(before_ns >= previous_ns, before_ns IS NOT NULL) AS clean FROM edged)
), spent AS (
    SELECT read.*, {", ".join(_between(kind, "a_ns", "b_ns") for kind in _KINDS)}
    FROM read
    ASOF JOIN tensor_course a ON read.gpu = a.gpu AND read.a_ns >= a.start_ns
    ASOF JOIN tensor_course b ON read.gpu = b.gpu AND read.b_ns >= b.start_ns
)
SELECT step_id, gpu, category, updates AS ns,
       greatest(0, tensor_ns - {
    " - ".join(
        f"CASE WHEN spent.{kind} = 0 THEN 0 ELSE spent.{kind} * level.{kind} END" for kind in _REST
    )
}) / updates AS level
FROM spent, tensor_level level WHERE read_ns >= 0.9 * (b_ns - a_ns) AND updates > 0
"""
"""Mean activity of tensor cores in the update of a GPU, over what was read of it; NULL where it
cannot be told from what they did before and after."""

_HIDDEN = """
CREATE OR REPLACE TEMP TABLE hidden_wait AS
WITH compared AS (
    SELECT *, max(level) OVER of_update AS most, count(level) OVER of_update AS known,
           count(*) OVER of_update AS gpus
    FROM tensor_busy WINDOW of_update AS (PARTITION BY step_id, category)
)
SELECT step_id, gpu, category, level, (ns * (1 - level / most))::BIGINT AS ns
FROM compared WHERE most > 0 AND known = gpus
"""


def find_hidden(tables: Tables) -> None:
    """Make ``hidden_wait``: by step and GPU, the part of an update that was waiting, ns.

    Where readings do not tell, of any GPU of an update, it has no row.
    """
    for statement in (_READ, _COURSE, _LEVEL, _BUSY, _HIDDEN):
        tables.sql.execute(statement)
