"""Where the time of every GPU went: the ledger, of the run, of each step and of each GPU."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.chapters.definitions import (
    Definition,
    Found,
    SeriesDefinition,
    evidence_of,
)
from rlvr_probe.analysis.figures import Chapter, Evidence, query
from rlvr_probe.analysis.islands import covered
from rlvr_probe.analysis.ledger import CATEGORIES, make_ledger
from rlvr_probe.analysis.ledger.notes import HIDDEN
from rlvr_probe.analysis.ledger.unit import unit_of
from rlvr_probe.recording.tables import Tables

__all__ = ["DEFINITIONS", "SERIES", "ledger"]

_NONE: Final = "no step of a training was recorded, or no clock"
_BY: Final = ("category",)
_GPU_S: Final = "GPU-s"


def _of(
    name: str, title: str, meaning: str, unit: str, by: tuple[str, ...] = (), unknown: str = _NONE
) -> Definition:
    return Definition(f"ledger.{name}", title, meaning, unit, unknown, by=by)


_GPUS: Final = _of(
    "gpus", "GPUs", "GPUs that the ledger has, or what stands for one: a rank, an engine.", "1"
)
_WALL: Final = _of(
    "wall", "wall time", "From the begin of the first step to the end of the last one.", "s"
)
_WHOLE: Final = _of("gpu_time", "GPU time", "GPUs times wall time.", _GPU_S)
_TIME: Final = _of("time", "GPU time by category", "Sum over GPUs and steps (ledger).", _GPU_S, _BY)
_SHARE: Final = _of(
    "share", "share of the GPU time", "Time of the category over GPUs times wall time.", "1", _BY
)
_ONCE: Final = _of(
    "wall_time",
    "wall time by category",
    "Time in which at least one GPU was at it (segment): categories overlap, and what was discarded"
    " or hidden in a collective is not told apart.",
    "s",
    _BY,
)
_HIDDEN: Final = _of(
    "hidden_wait",
    "waiting inside collectives",
    "Part of wait.update that spans show as work: time of an update times what the activity of its"
    " GPU's tensor cores is below that of the busiest one (hidden_wait).",
    _GPU_S,
    unknown=HIDDEN,
)
_RATE: Final = _of(
    "token_rate",
    "response tokens per GPU-s",
    "Response tokens of training, results of tools in them included, over the GPU time without"
    " evaluation (ledger, trajectory.response_tokens).",
    f"tokens/{_GPU_S}",
)
DEFINITIONS: Final = (_GPUS, _WALL, _WHOLE, _TIME, _SHARE, _ONCE, _HIDDEN, _RATE)

_COLUMNS: Final = dict.fromkeys(CATEGORIES, _GPU_S)
_PIVOT: Final = ", ".join(
    f"coalesce(sum(ns) FILTER (category = '{name}'), 0) / 1e9 AS \"{name}\"" for name in CATEGORIES
)
_STEPS: Final = SeriesDefinition(
    "ledger.steps",
    "GPU time of each step",
    "Sum over GPUs, by category; a step that was thrown away has discarded.redone.",
    {"step_id": "", "step": "", **_COLUMNS},
)
_EACH: Final = SeriesDefinition(
    "ledger.each_gpu",
    "time of each GPU",
    "Sum over steps, by category.",
    {"gpu": "", "process": "", "rank": "", "device": "", "part": "", **_COLUMNS},
)
_BARRIERS: Final = SeriesDefinition(
    "ledger.barriers",
    "barriers at which most was waited",
    "The 200 of them with the most GPU time, and who came last (barrier_wait).",
    {
        "step_id": "", "barrier": "", "gpu_s": _GPU_S, "last_kind": "", "process": "", "rank": "",
        "engine": "", "trajectory_id": "", "turn": "", "name": "",
    },
)  # fmt: skip
SERIES: Final = (_STEPS, _EACH, _BARRIERS)


def ledger(tables: Tables) -> Chapter:
    """The chapter; makes the tables of the ledger."""
    made = make_ledger(tables)
    found = Found("ledger", "Where the GPU time went", unit_of(tables))
    if made is None:
        found.add(*(one.of(None) for one in DEFINITIONS))
        return found.chapter()
    found.notes += made.notes
    wall = (made.end_ns - made.begin_ns) / 1e9
    gpus = query(tables, "SELECT count(*) FROM gpu")
    span = query(
        tables, "SELECT (max(end_ns) - min(start_ns)) / 1e9, any_value(step_id) FROM segment"
    )
    ranks = evidence_of(process=dict.fromkeys(one.process for one in made.gpus))
    begun = query(tables, "SELECT DISTINCT step_id FROM segment ORDER BY step_id")
    steps = evidence_of(step=[step for (step,) in begun.rows])
    found.add(_GPUS.of(len(made.gpus), gpus, evidence=ranks))
    found.add(_WALL.of(wall, span, evidence=steps))
    whole = query(tables, "SELECT sum(ns) / 1e9 FROM ledger")
    found.add(_WHOLE.of(len(made.gpus) * wall, whole, evidence={**steps, **ranks}))
    _by_category(found, tables, len(made.gpus) * wall)
    rate = query(
        tables,
        """
        SELECT (SELECT sum(response_tokens) FROM kept_trajectory WHERE mode = 'train')
          / nullif((SELECT sum(ns) / 1e9 FROM ledger WHERE category <> 'eval'), 0)
        """,
    )
    found.add(
        _RATE.of(rate.row[0], rate, why="no trajectory was recorded", evidence={**steps, **ranks})
    )
    hidden = query(
        tables, "SELECT count(*), coalesce(sum(ns), 0) / 1e9 FROM hidden_wait WHERE ns >= 0"
    )
    told = hidden.row[0] and HIDDEN not in made.notes
    found.add(_HIDDEN.of(hidden.row[1] if told else None, hidden))
    found.series += [
        _STEPS.of(
            query(
                tables,
                f"SELECT step_id, any_value(number) AS step, {_PIVOT} FROM ledger"
                " LEFT JOIN step USING (step_id) GROUP BY step_id ORDER BY step_id",
            )
        ),
        _EACH.of(
            query(
                tables,
                f"SELECT gpu, any_value(process) AS process, any_value(rank) AS rank,"
                f" any_value(device) AS device, any_value(part) AS part, {_PIVOT}"
                " FROM ledger JOIN gpu USING (gpu) GROUP BY gpu ORDER BY gpu",
            )
        ),
        _BARRIERS.of(
            query(
                tables,
                "SELECT step_id, barrier, gpu_ns / 1e9 AS gpu_s, last_kind, process, rank, engine,"
                " trajectory_id, turn, name FROM barrier_wait ORDER BY gpu_ns DESC, step_id,"
                " barrier LIMIT 200",
            )
        ),
    ]
    return found.chapter()


def _by_category(found: Found, tables: Tables, whole: float) -> None:
    """Every category, those with no time too."""
    held = query(
        tables,
        """
        SELECT category, sum(ns) / 1e9 AS seconds,
          list(step_id ORDER BY ns DESC, step_id)[1:20] AS steps, count(step_id) AS count
        FROM (SELECT category, step_id, sum(ns) AS ns FROM ledger GROUP BY category, step_id)
        GROUP BY category
        """,
    )
    gpus = query(
        tables,
        """
        SELECT category, list(process ORDER BY ns DESC, process)[1:20] AS processes,
          count(*) AS count
        FROM (SELECT category, process, sum(ns) AS ns FROM ledger JOIN gpu USING (gpu)
              WHERE process IS NOT NULL GROUP BY category, process)
        GROUP BY category
        """,
    )
    once = query(
        tables,
        f"SELECT category, ns / 1e9 AS seconds FROM ({covered('segment', 'category')})",
    )
    seconds = {row[0]: row[1:] for row in held.rows}
    processes = {row[0]: row[1:] for row in gpus.rows}
    walls = dict(once.rows)
    for name in CATEGORIES:
        taken, steps, many = seconds.get(name, (0.0, [], 0))
        workers, workers_many = processes.get(name, ([], 0))
        behind = {
            kind: Evidence.of([one for one in ids if one is not None], count)
            for kind, ids, count in (
                ("step", steps, many), ("process", workers, workers_many),
            )
            if count
        }  # fmt: skip
        by = {"category": name}
        found.add(
            _TIME.of(taken, held, evidence=behind, by=by),
            _SHARE.of(taken / whole if whole else None, held, evidence=behind, by=by),
        )
        if name in walls:
            found.add(_ONCE.of(walls[name], once, evidence=behind, by=by))
