"""What of a workload is written, decided before the first byte: checks, numbering, placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rlvr_probe.exceptions import WorkloadError
from rlvr_probe.model.workload import Iteration, LeftOut, Workload, WorkloadBatch
from rlvr_probe_polytrace.layout import MAX_COUNT
from rlvr_probe_polytrace.placement import Placement, engine_of, place

__all__ = ["Plan", "make_plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is written, and what is said about the rest.

    Attributes:
        batches: To write; position = workload step N.
        iterations: Those of ``batches``, renumbered.
        left_out: What is not written, from the workload and from here.
        placement: Data-parallel ranks.
        labels: Name of each reward function as written, by its position in the trainer.
        rewards: Whether reward times are known for every data-parallel rank of every batch.
        max_prompt_tokens, max_response_tokens: Longest seen, tokens.
        response_cap: Cap on a response, tokens; None if unknown or contradicted by the data.
        notes: For the manifest and the closing lines of the command.
    """

    batches: tuple[WorkloadBatch, ...]
    iterations: tuple[Iteration, ...]
    left_out: tuple[LeftOut, ...]
    placement: Placement
    labels: Mapping[int, str]
    rewards: bool
    max_prompt_tokens: int
    max_response_tokens: int
    response_cap: int | None
    notes: tuple[str, ...]


def make_plan(workload: Workload, *, keep_names: bool) -> Plan:
    """Decide what of ``workload`` can be written.

    Raises:
        WorkloadError: It breaks its own rules, or nothing of it can be written.
    """
    if workload.rollout_tp < 1 or workload.group_size < 1:
        raise WorkloadError(
            f"found rollout_tp {workload.rollout_tp} and group_size {workload.group_size}, "
            "expected both to be at least 1; the recording is inconsistent"
        )
    for position, batch in enumerate(workload.batches):
        _check(batch, position, workload.group_size)
    _refuse_turns(workload)
    batches, iterations, dropped = _without_empty_responses(workload)
    if not batches:
        raise WorkloadError(
            f"found {len(workload.batches)} complete batches, none of which PolyTrace can say, "
            "expected at least one; "
            + (
                "each holds a response of 0 tokens, which it would replay as 1"
                if dropped
                else "record at least one whole step"
            )
        )
    placement = place(batches, workload.rollout_tp)
    notes = [*workload.notes, *_unknown_turns(workload, batches)]
    if dropped:
        notes.append(
            f"{len(dropped)} batches are left out: a response of 0 tokens in their steps cannot "
            "be replayed"
        )
    if placement.reason is not None:
        notes.append(f"data-parallel ranks: {placement.reason}")
    longest = max(
        max(shard.response_tokens)
        for batch in batches
        for shard in batch.batch.shards
        if len(shard.response_tokens)
    )
    cap = workload.max_response_tokens
    if cap is not None and longest > cap:
        notes.append(
            f"the recorded cap of {cap} response tokens is left out: a response has {longest}"
        )
        cap = None
    rewards = _rewards_known(batches, placement)
    if not rewards:
        notes.append(
            "no reward timings: not every data-parallel rank of every batch has a recorded reward "
            "call"
        )
    return Plan(
        batches=batches,
        iterations=iterations,
        left_out=(*workload.left_out, *dropped),
        placement=placement,
        labels=_labels(workload, batches, keep_names=keep_names),
        rewards=rewards,
        max_prompt_tokens=max(
            max(shard.prompt_tokens)
            for batch in batches
            for shard in batch.batch.shards
            if len(shard.prompt_tokens)
        ),
        max_response_tokens=longest,
        response_cap=cap,
        notes=tuple(notes),
    )


def _check(batch: WorkloadBatch, position: int, group_size: int) -> None:
    """Refuse a batch that breaks the rules of a workload.

    Raises:
        WorkloadError: It does.
    """
    inner = batch.batch

    def refuse(found: str, expected: str) -> WorkloadError:
        return WorkloadError(
            f"batch {position} (step {inner.step}): found {found}, expected {expected}; "
            "record the run again, or report this as a bug of the trace reader"
        )

    if batch.index != position:
        raise refuse(f"index {batch.index}", f"index {position}")
    if inner.group_size != group_size:
        raise refuse(f"{inner.group_size} samples per prompt", f"{group_size} as in every batch")
    rows = 0
    for shard in inner.shards:
        if shard.offset != rows:
            raise refuse(f"rows of a rank from {shard.offset}", f"them from {rows}")
        if len(shard.prompt_tokens) != len(shard.response_tokens):
            raise refuse(
                f"{len(shard.prompt_tokens)} prompt lengths in a shard",
                f"{len(shard.response_tokens)}, as many as response lengths",
            )
        rows += len(shard.response_tokens)
        for what, lengths, least in (
            ("prompt", shard.prompt_tokens, 1),
            ("response", shard.response_tokens, 0),
        ):
            if not len(lengths):
                continue
            for length in (min(lengths), max(lengths)):
                if not least <= length <= MAX_COUNT:
                    raise refuse(
                        f"a {what} of {length} tokens", f"a length from {least} to {MAX_COUNT}"
                    )
    if rows != inner.total or rows == 0:
        raise refuse(f"{rows} rows", f"{inner.total}, at least 1")
    if rows % group_size:
        raise refuse(f"{rows} rows", f"whole groups of {group_size}")


def _refuse_turns(workload: Workload) -> None:
    """Refuse trajectories that were not generated in one go, or not in their step.

    PolyTrace replays a packed length as one generation from one prompt. With tools part of it was
    read, not generated, the rest was generated in pieces, and tools took time in between: the very
    stage that a replay measures would be another one.

    Raises:
        WorkloadError: There are such trajectories.
    """
    queued = sum(batch.batch.queued for batch in workload.batches)
    if queued:
        raise WorkloadError(
            f"found {queued:,} of {len(workload.batches):,} batches that were generated beside the "
            "training and taken from a queue, expected each in the step that trains on it; "
            "PolyTrace replays generation and training one after the other"
        )
    several = foreign = tokens = rows = 0
    for batch in workload.batches:
        for shard in batch.batch.shards:
            rows += len(shard.response_tokens)
            several += sum(len(turns) > 1 for turns in shard.turns.values())
            for runs, length in zip(shard.loss_runs or (), shard.response_tokens, strict=False):
                added = length - sum(runs[::2])
                foreign += added > 0
                tokens += added
    if several or foreign:
        raise WorkloadError(
            f"found {several:,} of {rows:,} trajectories with several turns and {foreign:,} whose "
            f"responses hold tokens that the model did not generate, {tokens:,} in all; expected "
            "one generation per trajectory, for packed lengths replay each response as one; see "
            "turns and tool calls with 'rlvr-probe show'"
        )


def _unknown_turns(workload: Workload, batches: tuple[WorkloadBatch, ...]) -> list[str]:
    """Trajectories of several turns may look as if they had one where records are missing.

    A loss mask that keeps everything tells that there was nothing but one generation, and so does
    a turn that generated the whole response.
    """
    if not workload.turns_lossy:
        return []
    unknown = rows = 0
    for batch in batches:
        for shard in batch.batch.shards:
            rows += len(shard.response_tokens)
            if shard.loss_runs is not None:
                continue
            for row, length in enumerate(shard.response_tokens):
                turns = shard.turns.get(row, ())
                unknown += not turns or (turns[0].response_tokens or 0) < length
    if not unknown:
        return []
    return [
        f"turns and tool calls may be missing: {unknown:,} of {rows:,} trajectories are written as "
        "generated in one go, which is not known of them"
    ]


def _without_empty_responses(
    workload: Workload,
) -> tuple[tuple[WorkloadBatch, ...], tuple[Iteration, ...], tuple[LeftOut, ...]]:
    """Leave out whole iterations with a response of 0 tokens, and number the rest from 0.

    PolyTrace replays 0 as 1 token. Writing 1 would be untrue, dropping the group would change the
    batch size, and refusing would lose a long run to one aborted request.
    """
    empty = {
        batch.index
        for batch in workload.batches
        if any(0 in shard.response_tokens for shard in batch.batch.shards)
    }
    if not empty:
        return workload.batches, workload.iterations, ()
    gone = set(empty)
    for iteration in workload.iterations:
        if not empty.isdisjoint(iteration.batches):
            gone.update(iteration.batches)
    kept = [batch for batch in workload.batches if batch.index not in gone]
    number = {batch.index: new for new, batch in enumerate(kept)}
    return (
        tuple(replace(batch, index=number[batch.index]) for batch in kept),
        tuple(
            replace(iteration, batches=tuple(number[index] for index in iteration.batches))
            for iteration in workload.iterations
            if gone.isdisjoint(iteration.batches)
        ),
        tuple(
            LeftOut(
                "step", "empty_response", None, batch.session, batch.batch.step, batch.batch.rows
            )
            for batch in workload.batches
            if batch.index in gone
        ),
    )


def _rewards_known(batches: tuple[WorkloadBatch, ...], placement: Placement) -> bool:
    """Whether every data-parallel rank of every batch has a reward call: unknown is not 0 s."""
    return all(
        len(
            {
                placement.dp_rank(engine_of(batch, shard, placement.tp))
                for shard in batch.batch.shards
                if shard.calls
            }
        )
        == placement.dp_size
        for batch in batches
    )


def _labels(
    workload: Workload, batches: tuple[WorkloadBatch, ...], *, keep_names: bool
) -> dict[int, str]:
    """Name of each reward function by position; an alias unless ``keep_names``."""
    names = dict(enumerate(workload.reward_functions))
    for batch in batches:
        for shard in batch.batch.shards:
            for column in shard.rewards:
                names.setdefault(column.index, column.function)
    if not keep_names:
        return {index: f"reward_{index}" for index in sorted(names)}
    given = list(names.values())
    return {
        index: name if given.count(name) == 1 else f"{name}_{index}"
        for index, name in sorted(names.items())
    }
