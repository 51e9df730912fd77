"""Reward signal: what rewards are, how they move, and which groups train nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rlvr_probe.analysis.metrics.section import ALIKE, Section, evidence_of
from rlvr_probe.analysis.results import Answer, Chapter, Evidence
from rlvr_probe.analysis.samples import is_workload
from rlvr_probe.analysis.statements import fill, make, statements
from rlvr_probe.analysis.statistics import share_interval
from rlvr_probe.recording.tables import Tables

__all__ = ["TABLES", "signal"]

_SQL: Final = statements(__name__)
TABLES: Final = _SQL.derived("group_reward")

_MODES: Final = {"training": "train", "evaluation": "eval"}
_THIRDS: Final = {None: "", 0: "_first", 2: "_last"}
"""End of the id by third of the steps; None is the whole run."""

_SHORT: Final = "fewer than three steps have rewards"
_WHY: Final = {
    "same": "no group of several trajectories has finite rewards alone",
    "mean": "no reward is finite",
    "std": "no reward is finite",
}


def signal(tables: Tables) -> Chapter:
    """What rewards a run trains on, and what its evaluation gives."""
    section = Section.of_samples(tables, "signal", "Reward signal")
    make(tables, TABLES, by_step=True)
    for name, mode in _MODES.items():
        if not _add(section, name, mode, "function"):
            continue
        if section.ask(_SQL["sourced"]).row[0]:
            _add(section, f"{name}.source", mode, "function", "source")
        _untrained(section, name, mode)
        section.add_series(
            f"{name}.by_step", section.ask(fill(_SQL["by_step"], by="step, function"), mode=mode)
        )
    return section.chapter()


def _add(section: Section, name: str, mode: str, *keys: str) -> bool:
    """Add metrics by ``keys``, of the run and of its first and last third; whether any."""
    by_keys = ", ".join(keys)
    sets, by_third = f"({by_keys}), ({by_keys}, third)", f"{by_keys}, third"
    answer = section.ask(fill(_SQL["whole"], by=by_third, sets=sets), mode=mode)
    if not answer.rows:
        section.add(f"{name}.mean", None, answer)
    rows = {(*(row[key] for key in keys), row["third"]): row for row in answer.dicts}
    for place, row in rows.items():
        if place[-1] is not None:
            continue
        names = (value or "(unknown)" for value in place[:-1])
        by = dict(zip(keys, names, strict=True))
        for part, end in _THIRDS.items():
            found = rows.get((*place[:-1], part), {})
            best = evidence_of(trajectory=found.get("best_of"))
            for value in ("mean", "std"):
                why = _WHY[value] if found else _SHORT
                section.add(
                    f"{name}.{value}{end}", found.get(value), answer, why=why, evidence=best, by=by
                )
            _same(section, f"{name}.same{end}", found, answer, by)
        for value in ("not_finite", "missing"):
            alike = is_workload(section.tables) and row["missing"] > 0
            share = None if alike else row[value]
            evidence = evidence_of(trajectory=row[f"{value}_of"])
            section.add(f"{name}.{value}", share, answer, why=ALIKE, evidence=evidence, by=by)
    return bool(rows)


def _untrained(section: Section, name: str, mode: str) -> None:
    answer = section.ask(_SQL["untrained"], mode=mode)
    rows = {row["third"]: row for row in answer.dicts}
    for part, end in _THIRDS.items():
        _same(section, f"{name}.untrained{end}", rows.get(part, {}), answer, {})


def _same(
    section: Section, name: str, row: Mapping[str, Any], answer: Answer, by: Mapping[str, str]
) -> None:
    """Add a share of groups; groups are independent of one another."""
    groups, alike = row.get("groups", 0), row.get("alike", 0)
    share = alike / groups if groups else None
    low, high = (None, None) if share is None else share_interval(share, groups)
    evidence = {"trajectory": Evidence.of(row["alike_of"], alike)} if alike else {}
    why = _WHY["same"] if row else _SHORT
    section.add(name, share, answer, low=low, high=high, why=why, evidence=evidence, by=by)
