"""What may be missing of a recording, and the times that are still known then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set

from rlvr_probe.model import names
from rlvr_probe.model.trace import Attempt, Process, Step, Trace

__all__ = ["loss_notes", "lossy_processes", "stage_seconds"]

_PER_BATCH = frozenset(
    name.name
    for name in (
        names.ROLLOUT, names.REWARD, names.OLD_LOGPROB, names.REF_LOGPROB, names.VALUES,
        names.ADVANTAGE, names.WEIGHT_SYNC,
    )
)  # fmt: skip
"""Stages that a step may lack because it generated nothing."""


def _reduced(process: Process) -> bool:
    """Whether it recorded less than everything for some time."""
    return process.level != "full" or bool(process.level_reason)


def lossy_processes(trace: Trace, attempt: Attempt) -> frozenset[int]:
    """Processes of ``attempt`` that may lack records: lost, muted, reduced, or by a fault."""
    members = [trace.processes[index] for index in attempt.processes]
    booked = Counter[str]()
    for process in trace.processes:
        booked.update(process.lost)
    # What was lost of nobody known may be anybody's.
    if any(count > booked[reason] for reason, count in trace.lost.items()):
        return frozenset(attempt.processes)
    return frozenset(
        one.index for one in members if one.lost or one.muted or one.faults or _reduced(one)
    )


def loss_notes(trace: Trace) -> list[str]:
    """What a reader of a workload should know. Hook points have names of users' code: no names."""
    notes = list[str]()
    reduced = sum(one.level != "full" for one in trace.processes)
    if reduced:
        notes.append(f"{reduced} processes recorded less from some time on")
    passing = sum(one.level == "full" and _reduced(one) for one in trace.processes)
    if passing:
        notes.append(f"{passing} processes recorded less for some time")
    muted = sum(bool(one.muted) for one in trace.processes)
    if muted:
        places = len({place for one in trace.processes for place in one.muted})
        notes.append(
            f"{places} hook points were passed over in {muted} processes from some time on, to cost"
            " less"
        )
    faults = sum(sum(one.faults.values()) for one in trace.processes)
    if faults:
        notes.append(f"{faults} errors inside the probe may each have cost a record")
    lost = sum(trace.lost.values())
    if lost:
        notes.append(f"{lost} records of this run were lost")
    return notes


def stage_seconds(steps: Sequence[Step], lossy: Set[int]) -> tuple[dict[str, float], list[str]]:
    """Wall seconds by stage, and the stages whose time is not known.

    Per step that of the slowest rank, summed over the steps.

    Args:
        steps: Of one iteration.
        lossy: Processes that may lack records. Where one of them lacks a stage that a like step
            has, the sum would be too small.
    """
    known, unknown = dict[str, float](), list[str]()
    for stage in (names.STEP.name, *names.STAGES):
        found = [(step, step.stage_seconds(stage)) for step in steps]
        if not any(by_rank for _, by_rank in found):
            continue
        if lossy and _lacking(stage, found, lossy):
            unknown.append(stage)
        else:
            known[stage] = sum(max(by_rank.values()) for _, by_rank in found if by_rank)
    return known, unknown


def _lacking(stage: str, found: Sequence[tuple[Step, dict[int, float]]], lossy: Set[int]) -> bool:
    seen = {bool(step.batches) for step, by_rank in found if by_rank}
    return any(
        process not in by_rank
        for step, by_rank in found
        if stage not in _PER_BATCH or bool(step.batches) in seen
        for process in lossy & {span.process for span in step.spans if span.name == names.STEP.name}
    )
