"""What the CPU of the host did in slow steps: more where others work on it, less where all wait.

A cause says what was slow; the busy cores of the machine say whether the slow steps had more of its
CPU to share than others, as with another job beside the training, or left it idle, as a process
that is stopped or waits. Where the machine was busier in some steps and more than one of their
stages took longer, it is the machine that was slow, and how long the steps took says by how much.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from rlvr_probe.analysis.causes.baselines import excess
from rlvr_probe.analysis.causes.builder import Run
from rlvr_probe.analysis.causes.stage_series import Series
from rlvr_probe.analysis.causes.thresholds import GREW, LONGER
from rlvr_probe.analysis.statements import statements

__all__ = ["MUCH", "busy_cores", "contended"]

_SQL: Final = statements(__name__)

MUCH: Final = 0.25
"""Share of the other stages of a step, by time, that a slow machine slows down at least."""

_STEPS: Final = 3
"""Fewest busy steps, and fewest others, that show what differs between them."""


def busy_cores(run: Run, steps: Iterable[int]) -> str:
    """Busy CPU cores in some steps beside all others, in words.

    Args:
        run: Whose hosts were read, or not.
        steps: The ``step_id`` of slow steps.

    Returns:
        Words to follow a title; empty where no CPU was read, or it was about as busy as usual.
    """
    for slow, usual in run.ask(_SQL["busy"], steps=list(steps)).rows:
        if max(slow / usual, usual / slow) >= LONGER:
            return f" (CPU cores busy: {slow:.1f}, in other steps {usual:.1f})"
    return ""


def contended(run: Run, series: Sequence[Series]) -> dict[int, float]:
    """What steps took longer in which a machine was busier than in others; ``step_id``, ns."""
    hosts, found = defaultdict[int, dict[int, float]](dict), dict[int, float]()
    known = {step for part in series for step in part.ns}
    for device, step, cores in run.ask(_SQL["busy_by_step"]).rows:
        if step in known and cores > 0:
            hosts[device][step] = cores
    for cores_of in hosts.values():
        cores = list(cores_of.values())
        more = excess(cores, [1.0] * len(cores))
        if more is not None and more.form != "growing":
            busy = {step for step, ns in zip(cores_of, more.ns, strict=True) if ns}
            found |= _longer_in(series, busy) if len(busy) >= _STEPS else {}
    return found


def _longer_in(series: Sequence[Series], busy: Container[int]) -> dict[int, float]:
    """What busy steps took longer than others, in all their stages; nothing where one alone did.

    That one may be what made the machine busy.
    """
    parts = list[tuple[float, float, Mapping[int, float]]]()  # time, what it lost, by step
    for part in series:
        if part.stage.name == "probe":  # it follows the stages that it is in
            continue
        ratios = {step: ns / part.usual[step] for step, ns in part.ns.items()}
        inside = [ratio for step, ratio in ratios.items() if step in busy]
        others = [ratio for step, ratio in ratios.items() if step not in busy]
        if not inside or len(others) < _STEPS:
            continue
        level = median(others)
        over = {step: ns - level * part.usual[step] for step, ns in part.ns.items() if step in busy}
        lost = sum(over.values()) if median(inside) >= GREW * level else 0.0
        parts.append((sum(part.ns[step] for step in over), lost, over))
    if not any(lost > 0 for _, lost, _ in parts):
        return {}
    most = max(parts, key=lambda part: part[1])
    rest = [part for part in parts if part is not most]
    if sum(ns for ns, lost, _ in rest if lost > 0) < max(1.0, MUCH * sum(ns for ns, *_ in rest)):
        return {}
    found = defaultdict[int, float](float)
    for _, _, longer_by in parts:
        for step, ns in longer_by.items():
            found[step] += ns
    return {step: ns for step, ns in found.items() if ns > 0}
