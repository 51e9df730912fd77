"""Surveys a workload: its flavour, and which batches and groups that flavour can express."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import sub

from rlvr_probe.exceptions import WorkloadError
from rlvr_probe.model.batch import Batch, BatchShard
from rlvr_probe.model.turns import turn_counts
from rlvr_probe.model.workload import Iteration, LeftOut, Workload, WorkloadBatch
from rlvr_probe_polytrace.files import MULTITURN_FLAVOR, PACKED_FLAVOR
from rlvr_probe_polytrace.placement import groups_of
from rlvr_probe_polytrace.records import MAX_COUNT
from rlvr_probe_polytrace.turns import flaw_of, overlapping

__all__ = ["Survey", "check_workload", "drop", "survey"]


@dataclass(slots=True)
class Survey:
    """What one look at every trajectory found.

    Attributes:
        flavor: ``packed`` or ``multiturn``.
        rows: Trajectories.
        several: How many had several turns, or called a tool.
        foreign, foreign_tokens: How many hold tokens that the model did not generate, and those.
        bad: First flaw of each batch that cannot be written, by index.
        flaws: Trajectories by flaw.
        skipped: Groups that are not written, by index of the batch.
        ragged: The same groups, as entries of the omitted ones.
        cut: Batches of which groups are not written that were trained on, by index.
        longest: Longest response, and longest turn where turns are written, tokens.
        context: Context that the longest turn needs, tokens.
        tools: Names of tools in the order in which they were first called.
        overlapping: Trajectories with tool calls that ran at the same time.
        unknown: Trajectories of which it is not known that they had one turn.
    """

    flavor: str
    rows: int = 0
    several: int = 0
    foreign: int = 0
    foreign_tokens: int = 0
    bad: dict[int, str] = field(default_factory=dict)
    flaws: Counter[str] = field(default_factory=Counter)
    skipped: dict[int, frozenset[int]] = field(default_factory=dict)
    ragged: list[LeftOut] = field(default_factory=list)
    cut: set[int] = field(default_factory=set)
    longest: int = 1
    context: int = 1
    tools: dict[str, None] = field(default_factory=dict)
    overlapping: int = 0
    unknown: int = 0

    @property
    def packed(self) -> bool:
        """Whether lengths alone are written."""
        return self.flavor == PACKED_FLAVOR

    @property
    def tokens(self) -> str:
        """What the lengths of responses count."""
        if not self.packed:
            return "per turn and tool call"
        if self.several or self.foreign:
            return "whole responses, with what tools and users added to them"
        return "what the model generated"

    def reject(self, batch: WorkloadBatch, flaw: str, rows: int = 1) -> None:
        """Count a flaw of some trajectories, for which their batch cannot be written."""
        self.bad.setdefault(batch.index, flaw)
        self.flaws[flaw] += rows

    def notes(self, workload: Workload) -> Iterator[str]:
        """What a user should know of it."""
        if self.packed and (self.several or self.foreign):
            yield (
                f"packed lengths of a run with several turns: {self.several:,} of {self.rows:,} "
                "trajectories had several turns or called tools, and each response is replayed as "
                f"one generation, with {self.foreign_tokens:,} tokens in {self.foreign:,} of them "
                "that the model did not generate; training is replayed on the right shapes, "
                "generation and tools are not replayed as they were"
            )
        if self.cut:
            yield (
                f"{len(self.cut)} batches lack groups of another size that were trained on: a "
                "replay generates and trains on fewer, and has no times to compare with"
            )
        if self.unknown:
            yield (
                f"turns and tool calls may be missing: {self.unknown:,} of {self.rows:,} "
                "trajectories are written as generated in one go, which is not known of them"
            )
        if not self.packed and workload.turns_lossy:
            yield "tool calls may be missing where a turn made several: some records were lost"
        if self.overlapping:
            yield (
                f"tool calls of {self.overlapping:,} trajectories ran at the same time; PolyTrace "
                "replays the calls of a turn one after the other"
            )


def survey(workload: Workload, flavor: str | None) -> Survey:
    """Look at every trajectory once, and at its turns only where they are written."""
    result = Survey(PACKED_FLAVOR)
    for batch in workload.batches:
        for shard in batch.batch.shards:
            _count(result, shard)
        _find_ragged(result, batch)
    _find_unselected(result, workload.batches)
    result.flavor = flavor or (
        MULTITURN_FLAVOR if result.several or result.foreign else PACKED_FLAVOR
    )
    for batch in workload.batches:
        if result.packed:
            _look_at_lengths(result, batch, lossy=workload.turns_lossy)
        else:
            _look_at_turns(result, batch, lossy=workload.turns_lossy)
    return result


def _count(result: Survey, shard: BatchShard) -> None:
    result.rows += len(shard.response_tokens)
    rows = {row for row, count in turn_counts(shard.turns).items() if count > 1}
    result.several += len(rows.union(shard.tool_calls))
    trained = shard.loss_of_rows
    if trained is not None:
        added = [*map(sub, shard.response_tokens, trained)]
        result.foreign += sum(tokens > 0 for tokens in added)
        result.foreign_tokens += sum(added)


def _find_ragged(result: Survey, batch: WorkloadBatch) -> None:
    """Groups of another size, which are not written: a flaw if there is no other."""
    inner = batch.batch
    if not _ragged(inner):
        return
    sizes = Counter[int]()
    for shard in inner.shards:
        sizes.update(groups_of(batch, shard))
    odd = {group: size for group, size in sizes.items() if size != inner.group_size}
    if odd and len(odd) == len(sizes):
        result.reject(batch, "ragged_group", sum(odd.values()))
    elif odd:
        if inner.used is None or inner.used & odd.keys():
            result.cut.add(batch.index)
        result.skipped[batch.index] = frozenset(odd)
        result.ragged.append(
            LeftOut("samples", "ragged_group", None, batch.session, inner.step, sum(odd.values()))
        )


def _find_unselected(result: Survey, batches: Sequence[WorkloadBatch]) -> None:
    """Batches whose filter was not recorded: a flaw where that of other batches was."""
    unselected = [batch for batch in batches if batch.batch.unselected]
    if len(unselected) < len(batches):
        for batch in unselected:
            result.reject(batch, "no_selection", batch.batch.rows)


def _look_at_lengths(result: Survey, batch: WorkloadBatch, *, lossy: bool) -> None:
    for shard in batch.batch.shards:
        lengths = shard.response_tokens
        if not len(lengths):
            continue
        result.longest = max(result.longest, *lengths)
        if 0 in lengths:
            result.reject(batch, "empty_response", sum(length == 0 for length in lengths))
        if shard.loss_runs is not None or not (lossy or shard.turns):
            # A loss mask that keeps everything says that there was nothing but one generation.
            continue
        for row, length in enumerate(lengths):
            turns = shard.turns.get(row, ())
            result.unknown += not turns or (turns[0].response_tokens or 0) < length


def _look_at_turns(result: Survey, batch: WorkloadBatch, *, lossy: bool) -> None:
    skipped = result.skipped.get(batch.index, frozenset())
    for group in batch.batch.groups():
        if group.index in skipped:
            continue
        for sample in group.trajectories:
            flaw = flaw_of(sample, lossy=lossy) if sample.response_tokens else "empty_response"
            if flaw is not None:
                result.reject(batch, flaw)
                continue
            result.longest = max(result.longest, sample.response_tokens)
            result.context = max(result.context, sample.prompt_tokens + sample.response_tokens)
            for turn in sample.turns:
                sent, made = turn.prompt_tokens or 0, turn.response_tokens or 0
                result.longest = max(result.longest, made)
                result.context = max(result.context, sent + made + 1)
            result.overlapping += overlapping(sample.tool_calls)
            result.tools.update({call.tool: None for call in sample.tool_calls if call.tool})


def drop(
    workload: Workload, result: Survey
) -> tuple[list[tuple[int, WorkloadBatch]], tuple[Iteration, ...], tuple[LeftOut, ...]]:
    """Omit whole iterations with a batch that cannot be written, and number the rest from 0.

    PolyTrace replays a response of 0 tokens as 1, and half a trajectory as a whole one. Writing
    that would be untrue, dropping the group would change the batch size, and refusing would lose a
    long run to one aborted request.

    Returns:
        Batches with the index they had, their iterations, and what was omitted.
    """
    gone = dict(result.bad)
    for iteration in workload.iterations:
        flaws = [result.bad[index] for index in iteration.batches if index in result.bad]
        if flaws:
            for index in iteration.batches:
                gone.setdefault(index, flaws[0])
    kept = [batch for batch in workload.batches if batch.index not in gone]
    number = {batch.index: new for new, batch in enumerate(kept)}
    return (
        [(batch.index, replace(batch, index=number[batch.index])) for batch in kept],
        tuple(
            replace(iteration, batches=tuple(number[index] for index in iteration.batches))
            for iteration in workload.iterations
            if gone.keys().isdisjoint(iteration.batches)
        ),
        tuple(
            LeftOut(
                "step", gone[batch.index], None, batch.session, batch.batch.step, batch.batch.rows
            )
            for batch in workload.batches
            if batch.index in gone
        ),
    )


def check_workload(workload: Workload) -> None:
    """Refuse a workload that breaks its own rules, or that no replay could follow.

    Raises:
        WorkloadError: It does.
    """
    if workload.rollout_tp < 1 or workload.group_size < 1:
        raise WorkloadError(
            f"found rollout_tp {workload.rollout_tp} and group_size {workload.group_size}, "
            "expected both to be at least 1; the recording is inconsistent"
        )
    for position, batch in enumerate(workload.batches):
        _check(batch, position, workload.group_size)
    queued = sum(batch.batch.queued for batch in workload.batches)
    if queued:
        raise WorkloadError(
            f"found {queued:,} of {len(workload.batches):,} batches that were generated beside the "
            "training and taken from a queue, expected each in the step that trains on it; "
            "PolyTrace replays generation and training one after the other"
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
    if not _ragged(inner) and rows % group_size:
        raise refuse(f"{rows} rows", f"whole groups of {group_size}")
    _check_prompts(batch)


def _ragged(batch: Batch) -> bool:
    return any(shard.groups is not None for shard in batch.shards)


def _check_prompts(batch: WorkloadBatch) -> None:
    """Refuse samples of one prompt that have prompts of different length.

    Raises:
        WorkloadError: There are some.
    """
    current, length = -1, 0
    for shard in batch.batch.shards:
        for group, tokens in zip(groups_of(batch, shard), shard.prompt_tokens, strict=True):
            if group == current and tokens != length:
                raise WorkloadError(
                    f"batch {batch.index} (step {batch.batch.step}): found prompt lengths "
                    f"{sorted((length, tokens))} in group {group}, expected one for all samples of "
                    "a prompt; its rows are not grouped as the trainer's group size says"
                )
            current, length = group, tokens
