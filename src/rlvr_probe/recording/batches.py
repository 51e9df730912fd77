"""Joins what all ranks recorded of generation batches, and marks what a filter kept of them.

That is lengths, rewards and reward calls. Which groups a filter kept, and which were trained on, is
known from the names of prompts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from rlvr_probe.model import names
from rlvr_probe.model.batch import Batch, BatchShard, RewardCall, RewardColumn
from rlvr_probe.model.trace import Session, Step
from rlvr_probe.model.turns import LooseCallColumns
from rlvr_probe.recording.clock import RunClock
from rlvr_probe.recording.coarse_rows import SelectedRow, SpanRow
from rlvr_probe.recording.fine.join import Part
from rlvr_probe.recording.journal import Journal
from rlvr_probe.recording.processes import Recorded

__all__ = ["Beside", "Member", "ancestors", "join_batches", "mark_unselected"]

_DEPTH = 16
"""Nesting of coarse spans beyond which a chain of parents is nonsense."""

_PASSED = "surplus"
"""Reason for which a group is thrown away although it passed the filter."""
_FAILED = "failed"
"""Reason of a group that may have no trajectory at all."""


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
    events: list[Part],
) -> dict[tuple[int, int], list[Batch]]:
    """Batches of one attempt by session and life, each in the order of step and ordinal.

    Args:
        attempt: Its index.
        members: Processes of the attempt.
        clock: Clock of the run.
        skipped: Gets the rows that could not be joined, by reason.
        beside: Gets what engines did beside these batches.
        events: Gets the recorded events of batches, one part each.
    """
    parts = dict[tuple[int, int, int, int, str], list[Part]]()
    for member in members:
        for part in _parts(attempt, member, clock, skipped):
            row = part.row
            life = member.recorded.life_at(row.session, row.time_ns)
            key = (row.session, life, row.step, row.ordinal, row.mode)
            parts.setdefault(key, []).append(part)
            events.append(part)
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
        ((row.session, member.recorded.life_at(row.session, row.time_ns), row.step), row)
        for member in members
        for row in member.recorded.journal.selected
    )
    _mark_selected(training, selected, skipped)
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
            sources=row.sources,
        )
        start_ns = around.get(row.batch) if row.batch else None
        parts.append(Part(attempt, row, shard, recorded, start_ns))
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


@dataclass(slots=True)
class _Named:
    kept: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    discarded: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    says_kept: bool = False
    says_used: bool = False


def _mark_selected(
    batches: Mapping[tuple[int, int, int], Sequence[Batch]],
    rows: Iterable[tuple[tuple[int, int, int], SelectedRow]],
    skipped: Counter[str],
) -> None:
    """Set :attr:`Batch.kept` and :attr:`Batch.used` where the trainer recorded them.

    A group that no list names was not kept, if its batch has a list of kept groups and none of
    those thrown away, and was not used, if there is a list of those. Otherwise it is unknown, and
    so is all its batch: an event of the step may be missing, or is to come, if no used group is
    recorded yet and the batch came last.

    Args:
        batches: Training batches by session, life and step.
        rows: Events, each with its session, life and step.
        skipped: Gets the prompts that are not those of one group each.
    """
    by_step = dict[tuple[int, int, int], _Named]()
    for place, row in rows:
        named = by_step.setdefault(place, _Named())
        named.says_kept = named.says_kept or row.kept is not None
        named.says_used = named.says_used or row.used is not None
        named.kept.update(row.kept or ())
        named.used.update(row.used or ())
        (named.kept if row.reason == _PASSED else named.discarded).update(row.discarded or ())
        if row.reason == _FAILED:
            named.failed.update(row.discarded or ())
    for place, named in by_step.items():
        _mark(batches.get(place, ()), named, skipped)


def _mark(batches: Sequence[Batch], named: _Named, skipped: Counter[str]) -> None:
    seen = Counter(prompt for batch in batches for _, prompt in batch.prompts())
    every = named.kept | named.used | named.discarded
    wrong = {
        prompt
        for prompt in every
        if seen[prompt] != 1 and (seen[prompt] or prompt not in named.failed)
    }
    skipped["unjoined_prompts"] += len(wrong)
    passed = named.kept | named.used
    last = max(
        (
            at
            for at, batch in enumerate(batches)
            if not every.isdisjoint(prompt for _, prompt in batch.prompts())
        ),
        default=len(batches),
    )
    for at, batch in enumerate(batches):
        groups = dict(batch.prompts())
        if not wrong.isdisjoint(groups.values()) or len(groups) != batch.count_groups()[0]:
            continue
        covered = every.issuperset(groups.values())
        apart = every.isdisjoint(groups.values())
        if apart and at > last and not named.says_used:
            continue
        if not covered and (named.discarded or (named.says_kept and apart)):
            skipped["unjoined_prompts"] += sum(prompt not in every for prompt in groups.values())
            continue
        if covered or named.says_kept:
            batch.kept = frozenset(group for group, prompt in groups.items() if prompt in passed)
        if named.says_used:
            batch.used = frozenset(
                group for group, prompt in groups.items() if prompt in named.used
            )


def mark_unselected(steps: Iterable[Step], sessions: Iterable[Session]) -> int:
    """Set :attr:`Batch.unselected` in steps that are done; how many batches that is.

    Args:
        steps: Of one attempt, after :func:`join_batches`.
        sessions: The settings of its training runs.
    """
    filtering = {session.session for session in sessions if session.facts.get("filters") == 1}
    found = [
        batch
        for step in steps
        if step.done and step.session in filtering
        for batch in step.batches
        if batch.kept is None and batch.used is None
    ]
    for batch in found:
        batch.unselected = True
    return len(found)
