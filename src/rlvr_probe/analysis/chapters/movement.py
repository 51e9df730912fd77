"""Data movement: what dispatching calls costs, and moving weights to the rollout engine."""

from __future__ import annotations

from typing import Final

from rlvr_probe.analysis.chapters.definitions import (
    Definition,
    Found,
    SeriesDefinition,
    evidence_of,
)
from rlvr_probe.analysis.chapters.distributions import Quantity, ask
from rlvr_probe.analysis.chapters.samples import is_workload
from rlvr_probe.analysis.figures import Chapter, query
from rlvr_probe.analysis.statements import statements
from rlvr_probe.recording.tables import Tables

__all__ = ["DEFINITIONS", "SERIES", "movement"]

_SQL: Final = statements(__name__)

_NO_CALLS: Final = "no call of a worker group that its caller waits for was joined"


_BY: Final = ("method",)


def _of(name: str, title: str, meaning: str, unit: str) -> Definition:
    return Definition(f"movement.call.{name}", title, meaning, unit, _NO_CALLS, by=_BY)


_CALL: Final = {
    "calls": _of("calls", "calls", "Calls of the method that their callers wait for (rpc).", "1"),
    "time": _of("time", "time", "Sum of their durations, as callers saw them (rpc).", "s"),
    "dispatch": _of(
        "dispatch",
        "dispatch",
        "Sum of duration as the caller saw it less that of its slowest rank (rpc, rpc_rank):"
        " serializing, sending, starting and collecting. Durations only: clocks of machines do not"
        " matter.",
        "s",
    ),
    "dispatch_share": _of(
        "dispatch_share", "dispatch of the time", "Dispatch over time of the calls.", "1"
    ),
    "dispatch_mean": _of("dispatch_mean", "dispatch of a call", "Mean dispatch of a call.", "s"),
    "dispatch_p50": _of(
        "dispatch_p50",
        "median dispatch",
        "Quantile 0.5 by linear interpolation of the dispatch of a call.",
        "s",
    ),
    "dispatch_p99": _of(
        "dispatch_p99",
        "dispatch, 99 % quantile",
        "Quantile 0.99 by linear interpolation of the dispatch of a call.",
        "s",
    ),
    "dispatch_max": _of("dispatch_max", "longest dispatch", "Largest dispatch of a call.", "s"),
}
_SYNC: Final = Quantity(
    "movement.weight_sync",
    "weight sync of a step",
    "the time that moving weights to the rollout engine takes in every step, of the rank that it"
    " takes longest (stage weight_sync)",
    "s",
    _SQL["weight_sync"],
    "no step moved weights to a rollout engine by a stage of its own",
    by_step=True,
    ids="step",
)
_SYNC_SHARE: Final = Definition(
    "movement.weight_sync.share",
    "moving weights of the step",
    "Sum of movement.weight_sync over the sum of the durations of the steps that did it (step).",
    "1",
    "no step moved weights to a rollout engine by a stage of its own",
)
_DISPATCH_STEP: Final = Quantity(
    "movement.dispatch",
    "dispatch of a step",
    "the dispatch of all calls of worker groups of every step together (as movement.call.dispatch)",
    "s",
    _SQL["dispatch"],
    _NO_CALLS,
    by_step=True,
    ids="step",
)
DEFINITIONS: Final = (
    *_CALL.values(), *_DISPATCH_STEP.definitions, *_SYNC.definitions, _SYNC_SHARE,
)  # fmt: skip
_BY_STEP: Final = SeriesDefinition(
    "movement.call.by_step",
    "calls by step and method",
    "Calls of worker groups that callers wait for: duration, and dispatch (as movement.call).",
    {"step": "", "method": "", "calls": "1", "seconds": "s", "dispatch": "s"},
)
SERIES: Final = (_BY_STEP, _DISPATCH_STEP.series, _SYNC.series)


def movement(tables: Tables) -> Chapter:
    """What it takes to move data and weights."""
    found = Found("movement", "Data movement")
    _calls(tables, found)
    ask(tables, found, _DISPATCH_STEP)
    spread = ask(tables, found, _SYNC)
    steps = query(tables, _SQL["synced_steps"])
    [told] = steps.dicts
    known = spread.count and spread.mean is not None and told["seconds"]
    share = spread.count * (spread.mean or 0.0) / told["seconds"] if known else None
    found.add(_SYNC_SHARE.of(share, steps, evidence=evidence_of(step=told["steps"])))
    if is_workload(tables):
        found.notes.append("a workload does not say how data and weights are moved")
        return found.chapter()
    found.notes.append(
        "resharding has no stage of its own: it is inside the calls and stages that do it"
    )
    return found.chapter()


def _calls(tables: Tables, found: Found) -> None:
    answer = query(tables, _SQL["calls"])
    for told in answer.dicts:
        behind = evidence_of(step=told["steps"], process=dict.fromkeys(told["slowest"]))
        for name, one in _CALL.items():
            found.add(one.of(told[name], answer, evidence=behind, by={"method": told["method"]}))
        if told["odd"]:
            found.notes.append(
                f"{told['odd']:,} calls of {told['method']} lasted longer on a rank than for their"
                " caller: they did not wait, and count as dispatched in no time"
            )
    if not answer.rows:
        found.add(_CALL["dispatch"].of(None, answer))
        return
    steps = query(tables, _SQL["calls_by_step"])
    found.series.append(_BY_STEP.of(steps))
