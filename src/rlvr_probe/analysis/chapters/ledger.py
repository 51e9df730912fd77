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
from rlvr_probe.analysis.statements import fill, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["DEFINITIONS", "SERIES", "ledger"]

_SQL: Final = statements(__name__)

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
    gpus = query(tables, _SQL["gpus"])
    span = query(tables, _SQL["wall"])
    ranks = evidence_of(process=dict.fromkeys(one.process for one in made.gpus))
    begun = query(tables, _SQL["steps"])
    steps = evidence_of(step=[step for (step,) in begun.rows])
    found.add(_GPUS.of(len(made.gpus), gpus, evidence=ranks))
    found.add(_WALL.of(wall, span, evidence=steps))
    whole = query(tables, _SQL["gpu_time"])
    found.add(_WHOLE.of(len(made.gpus) * wall, whole, evidence={**steps, **ranks}))
    _by_category(found, tables, len(made.gpus) * wall)
    rate = query(tables, _SQL["token_rate"])
    found.add(
        _RATE.of(rate.row[0], rate, why="no trajectory was recorded", evidence={**steps, **ranks})
    )
    hidden = query(tables, _SQL["hidden_wait"])
    told = hidden.row[0] and HIDDEN not in made.notes
    found.add(_HIDDEN.of(hidden.row[1] if told else None, hidden))
    found.series += [
        _STEPS.of(query(tables, fill(_SQL["by_step"], categories=_PIVOT))),
        _EACH.of(query(tables, fill(_SQL["by_gpu"], categories=_PIVOT))),
        _BARRIERS.of(query(tables, _SQL["barriers"])),
    ]
    return found.chapter()


def _by_category(found: Found, tables: Tables, whole: float) -> None:
    """Every category, those with no time too."""
    held = query(tables, _SQL["time"])
    gpus = query(tables, _SQL["processes"])
    once = query(tables, fill(_SQL["wall_time"], covered=covered("segment", "category")))
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
