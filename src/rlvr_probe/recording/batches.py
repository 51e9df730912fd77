"""Joins the lengths, rewards and reward calls of all ranks into generation batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from rlvr_probe.model import names
from rlvr_probe.model.batch import Batch, BatchShard, RewardCall, RewardColumn
from rlvr_probe.model.turns import LooseCallColumns
from rlvr_probe.recording.attempts import life_at
from rlvr_probe.recording.clock import RunClock
from rlvr_probe.recording.coarse_rows import SpanRow
from rlvr_probe.recording.filtering import mark_selected
from rlvr_probe.recording.fine.join import Part
from rlvr_probe.recording.journal import Journal
from rlvr_probe.recording.processes import Recorded

__all__ = ["Beside", "Member", "ancestors", "join_batches"]

_DEPTH = 16
"""Nesting of coarse spans beyond which a chain of parents is nonsense."""


@dataclass(frozen=True, slots=True)
class Member:
    """A process of an attempt: index in the run, rank, and what it recorded."""

    index: int
    rank: int | None
    recorded: Recorded


@dataclass(frozen=True, slots=True)
class Beside:
    """What engines did beside the batches of an attempt's steps.

    Attributes:
        calls: Calls that are not a turn of a known trajectory.
        untrained: Batches that were generated for a queue and never trained on.
    """

    calls: LooseCallColumns = field(default_factory=LooseCallColumns)
    untrained: list[Batch] = field(default_factory=list)


def ancestors(span: SpanRow, by_id: dict[int, SpanRow]) -> Iterator[SpanRow]:
    """The finished coarse spans around ``span``, innermost first."""
    parent = by_id.get(span.parent)
    for _ in range(_DEPTH):
        if parent is None:
            return
        yield parent
        parent = by_id.get(parent.parent)


def join_batches(
    attempt: int,
    members: Sequence[Member],
    clock: RunClock,
    skipped: Counter[str],
    beside: Beside,
    told: list[Part],
) -> dict[tuple[int, int], list[Batch]]:
    """Batches of one attempt by session and life, each in the order of step and ordinal.

    Args:
        attempt: Its index.
        members: Processes of the attempt.
        clock: Clock of the run.
        skipped: Gets the rows that could not be joined, by reason.
        beside: Gets what engines did beside these batches.
        told: Gets the recorded events of batches, one part each.
    """
    parts = dict[tuple[int, int, int, int, str], list[Part]]()
    for member in members:
        for part in _parts(attempt, member, clock, skipped):
            row = part.row
            life = life_at(member.recorded, row.session, row.time_ns)
            key = (row.session, life, row.step, row.ordinal, row.mode)
            parts.setdefault(key, []).append(part)
            told.append(part)
        for call in member.recorded.journal.whole_calls:
            start_ns, end_ns = (
                clock.at(member.recorded, time_ns) for time_ns in (call.start_ns, call.end_ns)
            )
            beside.calls.append(
                replace(call, process=member.index, start_ns=start_ns, end_ns=end_ns)
            )
    batches = dict[tuple[int, int], list[Batch]]()
    training = dict[tuple[int, int, int], list[Batch]]()
    for (session, life, step, ordinal, mode), found in sorted(
        parts.items(), key=lambda item: item[0]
    ):
        batch = _batch(mode, max(0, step), ordinal, found, skipped)
        if step < 0:
            beside.untrained.append(batch)
            continue
        batches.setdefault((session, life), []).append(batch)
        if mode == "train":
            training.setdefault((session, life, step), []).append(batch)
    beside.untrained.reverse()
    selected = (
        ((row.session, life_at(member.recorded, row.session, row.time_ns), row.step), row)
        for member in members
        for row in member.recorded.journal.selected
    )
    mark_selected(training, selected, skipped)
    return batches


def _batch(mode: str, step: int, ordinal: int, parts: list[Part], skipped: Counter[str]) -> Batch:
    parts.sort(key=lambda part: (part.row.offset, part.shard.process))
    if any(part.row.grows for part in parts):  # one process records it, piece by piece
        whole = max(part.row.total for part in parts)
        parts = [replace(part, row=structs.replace(part.row, total=whole)) for part in parts]
    shape = Counter((part.row.total, part.row.group_size) for part in parts).most_common(1)[0][0]
    versions = set[int | None]()
    shards = list[BatchShard]()
    end = 0
    for part in parts:
        if (part.row.total, part.row.group_size) != shape:
            skipped["contradicting_rows"] += 1
        elif part.row.offset < end:
            skipped["overlapping_rows"] += 1
        else:
            shards.append(part.shard)
            versions.add(part.row.policy_version)
            end = part.row.offset + len(part.row.response_tokens)
    version = versions.pop() if len(versions) == 1 else None
    queued = any(part.row.queue_group is not None for part in parts)
    return Batch(mode, step, ordinal, version, shape[1], shape[0], shards, queued=queued)


def _parts(attempt: int, member: Member, clock: RunClock, skipped: Counter[str]) -> list[Part]:
    """What one process recorded of batches, with their rollout, reward calls and rewards."""
    journal, recorded = member.recorded.journal, member.recorded
    by_batch = dict[int, list[BatchShard]]()
    around = {span.id: clock.at(recorded, span.start_ns) for span in journal.spans}
    parts = list[Part]()
    for row in journal.trajectories:
        shard = BatchShard(
            process=member.index,
            rank=member.rank,
            offset=row.offset,
            prompt_tokens=row.prompt_tokens,
            response_tokens=row.response_tokens,
            truncated=row.truncated,
            start_ns=None,
            end_ns=None,
            recorded_ns=clock.at(recorded, row.time_ns),
            loss_runs=row.loss_runs,
            engines=row.engines,
            groups=row.groups,
            prompts=row.prompts,
        )
        begun_ns = around.get(row.batch) if row.batch else None
        parts.append(Part(attempt, row, shard, recorded, begun_ns))
        if row.batch:
            by_batch.setdefault(row.batch, []).append(shard)
    alone = {batch: shards[0] for batch, shards in by_batch.items() if len(shards) == 1}
    _add_spans(member, clock, alone)
    for reward in journal.rewards:
        found = alone.get(reward.batch)
        if found is None:
            skipped["unjoined_rewards"] += 1
        elif len(reward.values) != len(found.response_tokens):
            skipped["bad_row"] += 1
        else:
            column = RewardColumn(reward.function, reward.index, reward.values, reward.verify_s)
            found.rewards.append(column)
    for part in parts:
        part.shard.rewards.sort(key=lambda column: column.index)
        part.shard.calls = part.shard.calls.by_start()
    return parts


def _add_spans(member: Member, clock: RunClock, shards: dict[int, BatchShard]) -> None:
    journal: Journal = member.recorded.journal
    by_id = {span.id: span for span in journal.spans}
    for span in journal.spans:
        if span.name not in (names.ROLLOUT.name, names.REWARD_FN.name):
            continue
        shard = _shard_of(span, by_id, shards)
        if shard is None:
            continue
        start, end = (
            clock.at(member.recorded, span.start_ns),
            clock.at(member.recorded, span.end_ns),
        )
        if span.name == names.ROLLOUT.name:
            shard.start_ns = start if shard.start_ns is None else min(start, shard.start_ns)
            shard.end_ns = end if shard.end_ns is None else max(end, shard.end_ns)
        else:
            function, samples = span.attributes.get("function"), span.attributes.get("samples")
            shard.calls.append(
                RewardCall(
                    member.index,
                    function if isinstance(function, str) else "",
                    start,
                    end,
                    samples if type(samples) is int else None,
                )
            )


def _shard_of(
    span: SpanRow, by_id: dict[int, SpanRow], shards: dict[int, BatchShard]
) -> BatchShard | None:
    """The shard whose experience span, or rollout span, is this one or lies around it."""
    batch = span.attributes.get("batch")
    keys = [batch] if type(batch) is int else [span.id, span.parent]
    if type(batch) is not int:
        keys += [above.parent for above in ancestors(span, by_id)]
    return next((shards[key] for key in keys if key in shards), None)
