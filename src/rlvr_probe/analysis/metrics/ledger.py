"""Where the time of every GPU went: the ledger, of the run, of each step and of each GPU."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.ledger import CATEGORIES, make_ledger
from rlvr_probe.analysis.ledger.ledger import HIDDEN, unit_of
from rlvr_probe.analysis.metrics.section import Section, evidence_of
from rlvr_probe.analysis.results import Chapter, Evidence
from rlvr_probe.analysis.statements import covered, fill, statements
from rlvr_probe.recording.tables import Tables

__all__ = ["ledger"]

_SQL: Final = statements(__name__)

_NAMES: Final = (
    "gpus", "wall", "gpu_time", "time", "share", "wall_time", "hidden_wait", "token_rate",
)  # fmt: skip
_PIVOT: Final = ", ".join(
    f"coalesce(sum(ns) FILTER (category = '{name}'), 0) / 1e9 AS \"{name}\"" for name in CATEGORIES
)


def ledger(tables: Tables) -> Chapter:
    """The ledger as metrics; makes its tables."""
    result = make_ledger(tables)
    section = Section(tables, "ledger", "Where the GPU time went", unit_of(tables))
    if result is None:
        for name in _NAMES:
            section.add(name, None)
        return section.chapter()
    section.notes += result.notes
    gpus, wall = len(result.gpus), result.wall_s
    ranks = evidence_of(process=dict.fromkeys(gpu.process for gpu in result.gpus))
    steps = evidence_of(step=[step for (step,) in section.ask(_SQL["steps"]).rows])
    section.add("gpus", gpus, section.ask(_SQL["gpus"]), evidence=ranks)
    section.add("wall", wall, section.ask(_SQL["wall"]), evidence=steps)
    whole = section.ask(_SQL["gpu_time"])
    section.add("gpu_time", gpus * wall, whole, evidence={**steps, **ranks})
    _by_category(section, gpus * wall)
    rate, why = section.ask(_SQL["token_rate"]), "no trajectory was recorded"
    section.add("token_rate", rate.row[0], rate, why=why, evidence={**steps, **ranks})
    hidden = section.ask(_SQL["hidden_wait"])
    known = hidden.row[0] and HIDDEN not in result.notes
    section.add("hidden_wait", hidden.row[1] if known else None, hidden, why=HIDDEN)
    section.add_series("steps", section.ask(fill(_SQL["by_step"], categories=_PIVOT)))
    section.add_series("each_gpu", section.ask(fill(_SQL["by_gpu"], categories=_PIVOT)))
    section.add_series("barriers", section.ask(_SQL["barriers"]))
    return section.chapter()


def _by_category(section: Section, whole: float) -> None:
    """Every category, those with no time too."""
    time = section.ask(_SQL["time"])
    seconds = {row[0]: row[1:] for row in time.rows}
    processes = {row[0]: row[1:] for row in section.ask(_SQL["processes"]).rows}
    once = section.ask(fill(_SQL["wall_time"], covered=covered("segment", "category")))
    walls = dict(once.rows)
    for name in CATEGORIES:
        taken, steps, count = seconds.get(name, (0.0, [], 0))
        evidence = {
            kind: Evidence.of([number for number in ids if number is not None], many)
            for kind, ids, many in (
                ("step", steps, count), ("process", *processes.get(name, ([], 0))),
            )
            if many
        }  # fmt: skip
        by = {"category": name}
        section.add("time", taken, time, evidence=evidence, by=by)
        section.add("share", taken / whole if whole else None, time, evidence=evidence, by=by)
        if name in walls:
            section.add("wall_time", walls[name], once, evidence=evidence, by=by)
