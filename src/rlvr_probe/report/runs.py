"""Lays out a list of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_probe.report.blocks import Block, Columns, Line, clean, count_of, table

__all__ = ["lay_out_runs"]

_HEAD = 1_000_000


def lay_out_runs(lake: str, runs: Sequence[Mapping[str, Any]], total: int) -> list[Block]:
    """One row for each run.

    Args:
        lake: As the user named it.
        runs: Those to show, by the names of :data:`~rlvr_probe.recording.lake.COLUMNS`.
        total: Runs that the lake has.
    """
    columns: Columns = {
        "<run": lambda run: clean(run["run"], 40),
        "<started": lambda run: _text(run["started"], 10),
        "<framework": lambda run: _text(run["framework"]),
        "<model": lambda run: _text(run["model_type"]),
        "GPUs": lambda run: _number(run["gpus"], ",d"),
        "steps": lambda run: _number(run["steps"], ",d"),
        "GPU-hours": lambda run: _hours(run["gpu_hours"]),
        "<first cause": _cause,
    }
    of = "" if len(runs) == total else f" of {total:,}"
    title = f"{count_of(len(runs), 'run')}{of} in {clean(lake, 80)}"
    if not runs:
        return [Line(title)]
    return table(title, columns, runs, head=_HEAD, what="runs")


def _cause(run: Mapping[str, Any]) -> str:
    if run["steps"] is None:
        return "not characterized yet"
    if run["cause"] is None:
        return "" if run["gpu_hours"] is None else "none found"
    return f"{clean(run['cause'], 24)} {run['cause_share']:.0%}"


def _hours(hours: float | None) -> str:
    return _number(hours, ".2g" if hours is not None and hours < 0.1 else ",.1f")


def _text(value: object, width: int = 16) -> str:
    return "" if value is None else clean(str(value)[:width], width)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
