"""What is missing of a recording or unknown in a workload, in words, and the times still known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import Final, NamedTuple

from rlvr_probe.model import names
from rlvr_probe.model.batch import BatchShard
from rlvr_probe.model.columns import unknown_in
from rlvr_probe.model.trace import Attempt, Process, Step, Trace
from rlvr_probe.model.workload import LeftOut, WorkloadBatch

__all__ = [
    "REASONS",
    "loss_notes",
    "lossy_processes",
    "stage_seconds",
    "unknown_notes",
    "why_nothing",
]

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
    # What an unknown process lost may be any process's.
    if any(count > booked[reason] for reason, count in trace.lost.items()):
        return frozenset(attempt.processes)
    return frozenset(
        process.index
        for process in members
        if process.lost or process.muted or process.faults or _reduced(process)
    )


def loss_notes(trace: Trace) -> list[str]:
    """What a reader of a workload should know. Hook points have names of users' code: no names."""
    notes = list[str]()
    reduced = sum(process.level != "full" for process in trace.processes)
    if reduced:
        notes.append(f"{reduced} processes recorded less from some time on")
    passing = sum(process.level == "full" and _reduced(process) for process in trace.processes)
    if passing:
        notes.append(f"{passing} processes recorded less for some time")
    muted = sum(bool(process.muted) for process in trace.processes)
    if muted:
        places = len({place for process in trace.processes for place in process.muted})
        notes.append(
            f"{places} hook points were passed over in {muted} processes from some time on, to cost"
            " less"
        )
    faults = sum(sum(process.faults.values()) for process in trace.processes)
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


class Reason(NamedTuple):
    """A reason of :class:`~rlvr_probe.model.workload.LeftOut`.

    Attributes:
        why: Follows the name of what was omitted, whether one or many.
        remedy: What to do about it; "" if there is nothing to be done, or no need.
    """

    why: str
    remedy: str = ""


REASONS: Final = {
    "incomplete": Reason("that not every rank finished", "convert when a step is done"),
    "superseded": Reason("that a resumed attempt did again"),
    "lost_records": Reason("of which records were lost", "rlvr-probe show says how many, and why"),
    "evaluation": Reason("of an evaluation", "a workload is made of training steps"),
    "not_chosen": Reason("other than that of --attempt"),
    "no_batch": Reason("that trained on a batch which is lost or omitted"),
    "unknown_rank": Reason(
        "generated by a process that recorded no rank",
        "RANK was not set, and the trainer was made before the recording started: call attach()"
        " first, or put rlvr-probe run in front of the command",
    ),
}


def why_nothing(left_out: Sequence[LeftOut]) -> str:
    """Why a workload would be empty: each kind of thing that was omitted, and what to do."""
    times, rows = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for item in left_out:
        times[item.what, item.reason] += 1
        rows[item.what, item.reason] += item.count
    found = list[str]()
    for (what, code), count in times.items():
        reason = REASONS[code]
        # Of samples their number is all that there is to say.
        number = f"{rows[what, code]:,}" if what == "samples" else f"{count:,}"
        noun = what if what == "samples" or count == 1 else f"{what}s"
        remedy = f" ({reason.remedy})" if reason.remedy else ""
        found.append(f"{number} {noun} {reason.why}{remedy}")
    return "; ".join(found)


def unknown_notes(batches: Sequence[WorkloadBatch]) -> list[str]:
    """Of how many trajectories something is not known that is known of others."""
    shards = [shard for taken in batches for shard in taken.batch.shards]
    rows = _rows(shards)
    counts = {
        "the rollout engine": sum(_unknown(shard, shard.engines) for shard in shards),
        "when it started and ended": sum(_unknown(shard, shard.times_ns) for shard in shards),
        "the policy version": sum(_unknown(shard, shard.policy_versions) for shard in shards),
        "a reward": _rows(shard for shard in shards if not shard.rewards),
        # Of all rows of a shard, or of none.
        "whether it was cut off": _rows(shard for shard in shards if shard.truncated is None),
        "the loss mask": _rows(shard for shard in shards if shard.loss_runs is None),
    }
    return [
        f"{what} is not known of {count:,} of {rows:,} trajectories"
        for what, count in counts.items()
        if 0 < count < rows
    ]


def _unknown(shard: BatchShard, column: Sequence[object] | None) -> int:
    return len(shard.response_tokens) if column is None else unknown_in(column)


def _rows(shards: Iterable[BatchShard]) -> int:
    return sum(len(shard.response_tokens) for shard in shards)
