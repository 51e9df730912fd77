"""Reads the step files of one batch: packed lengths with reward times, or trajectories."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeVar

from msgspec import UNSET

from rlvr_probe.model import names
from rlvr_probe.model.batch import Batch, BatchShard, RewardColumn, Turn
from rlvr_probe.model.workload import ReadBatch, UntimedDuration
from rlvr_probe_polytrace.files import FileReader, Folder
from rlvr_probe_polytrace.records import (
    Extension,
    FilterRecord,
    Manifest,
    PackedRecord,
    RewardRecord,
    StepEntry,
    TrajectoryExtension,
    TrajectoryRecord,
)
from rlvr_probe_polytrace.validate_lengths import check_extension
from rlvr_probe_polytrace.validate_turns import check_trajectory_extension

__all__ = ["Reading", "read_multiturn", "read_packed"]

_T = TypeVar("_T")
_Column = list[float | None]

_STATUSES = {"success": "ok", "api_error": "error"}
"""Ours for PolyTrace's; of ``unknown`` nothing is known."""


@dataclass(slots=True)
class Reading:
    """What the manifest says of a directory, and what the records have in common.

    Attributes:
        folder: The workload.
        manifest: Its manifest, if it has one.
        unknown: Fields of which some values stand for an unknown one.
        steps: Where each workload step comes from; empty without a manifest.
        filter: Lines of the filter by workload step.
        caps: Longest responses allowed, tokens, as the records say.
        ranks: Global rank by data-parallel rank; each is a process.
    """

    folder: Folder
    manifest: Manifest | None = None
    unknown: frozenset[str] = frozenset()
    steps: Mapping[int, StepEntry] = field(default_factory=dict)
    filter: dict[int, FilterRecord] = field(default_factory=dict)
    caps: set[int] = field(default_factory=set)
    ranks: dict[int, int] = field(default_factory=dict)

    def known(self, name: str, value: _T, placeholder: object) -> _T | None:
        """``value`` of the field ``name`` if it is a recorded one, else None.

        Where some are not, one that looks like those is none: unknown is never a number.
        """
        return None if name in self.unknown and value == placeholder else value

    def origin(self, step: int) -> tuple[int, int, int]:
        """Session, trainer step and ordinal of a workload step."""
        entry, line = self.steps.get(step), self.filter.get(step)
        if entry is not None:
            return entry.session, entry.trainer_step, entry.ordinal
        return (0, step, 0) if line is None else (0, line.trainer_step, line.gen_batch_index - 1)

    @property
    def tp(self) -> int | None:
        """Tensor-parallel size, as the ranks show it."""
        sizes = {rank // dp for dp, rank in self.ranks.items() if dp and not rank % dp}
        return sizes.pop() if len(sizes) == 1 else None


def read_packed(reading: Reading, step: int, name: str, rewards: str | None) -> ReadBatch:
    """One step of packed lengths.

    Args:
        reading: Gets the data-parallel ranks.
        step: Its number.
        name: Of the file of lengths.
        rewards: Of that of reward times, if there is one.
    """
    records = list[PackedRecord]()
    for location, record in FileReader(reading.folder, name).records(PackedRecord):
        if record.validate:
            continue
        location.equal("step", record.step, step, " as in the file name")
        if record.x_rlvr is not UNSET:
            check_extension(location.within("x_rlvr"), record.x_rlvr, len(record.output))
        records.append(record)
    reading.folder.raise_first()  # columns of unequal length make no batch
    # As PolyTrace's readers do, whose order the filter's indices count in.
    records.sort(key=lambda record: (record.dp_rank, record.rank, record.local_index))
    size = max((len(record.output) for record in records), default=1)
    ragged = any(len(record.output) != size for record in records)
    shards, row, first = list[BatchShard](), 0, 0
    for dp_rank, members in groupby(records, key=lambda record: record.dp_rank):
        own = list(members)
        reading.ranks.setdefault(dp_rank, own[0].rank)
        groups = [
            group for group, record in enumerate(own, first) for _ in range(len(record.output))
        ]
        shards.append(_packed_shard(own, row, groups if ragged else None))
        row, first = row + len(groups), first + len(own)
    extensions = [record.extension for record in records]
    return ReadBatch(
        number=step,
        batch=_batch(reading, step, (size, len(records)), shards, extensions),
        session=reading.origin(step)[0],
        lasting=tuple(_reward_times(reading, rewards)),
    )


def _batch(
    reading: Reading,
    step: int,
    shape: tuple[int, int],
    shards: list[BatchShard],
    extensions: Sequence[Extension | TrajectoryExtension],
    groups: Sequence[int] | None = None,
) -> Batch:
    """A batch of (samples per prompt, prompts) with what ``x_rlvr``, else the filter, says of it.

    ``groups`` has the group of each extension where that is not its position.
    """
    _, trainer_step, ordinal = reading.origin(step)
    line = reading.filter.get(step)
    return Batch(
        "train",
        trainer_step,
        ordinal,
        _policy([extension.policy_version for extension in extensions]),
        shape[0],
        shape[0] * shape[1],
        shards,
        kept=_selected(
            [extension.kept for extension in extensions],
            None if line is None else line.kept_prompt_indices,
            groups,
        ),
        used=_selected(
            [extension.used for extension in extensions],
            None if line is None else line.used_prompt_indices,
            groups,
        ),
    )


def _packed_shard(
    records: Sequence[PackedRecord], offset: int, groups: Sequence[int] | None
) -> BatchShard:
    """The prompts of one data-parallel rank; ``groups`` has each row's where sizes differ."""
    dp_rank = records[0].dp_rank
    engines = list[int | None]()
    reasons = list[str | None]()
    bounds = list[tuple[int | None, int | None]]()
    for record in records:
        extension, unknown = record.extension, [None] * len(record.output)
        # Without our own word for it, the rank is the engine.
        rank_is_engine = record.x_rlvr is UNSET
        engines += [dp_rank] * len(unknown) if rank_is_engine else extension.engine_id or unknown
        reasons += extension.finish_reason or unknown
        oldest, newest = extension.policy_version_min, extension.policy_version_max
        bounds += zip(oldest or unknown, newest or unknown, strict=True)
    return BatchShard(
        process=dp_rank,
        rank=records[0].rank,
        offset=offset,
        prompt_tokens=[record.input for record in records for _ in record.output],
        response_tokens=[length for record in records for length in record.output],
        truncated=_truncated(reasons),
        start_ns=None,
        end_ns=None,
        rewards=_reward_columns([(record.extension, len(record.output)) for record in records]),
        engines=engines,
        groups=groups,
        policy_versions=_versions(bounds),
        sources=_sources([record.extension for record in records for _ in record.output]),
    )


def _reward_times(reading: Reading, name: str | None) -> Iterator[UntimedDuration]:
    if name is None:
        return
    for _, record in FileReader(reading.folder, name).records(RewardRecord):
        if not record.validate:
            yield UntimedDuration(
                "reward_call",
                record.reward_time_s,
                process=record.dp_rank,
                samples=record.batch_size,
            )


def read_multiturn(reading: Reading, step: int, name: str) -> ReadBatch:
    """One step of trajectories; ``reading`` gets the caps."""
    records = list[TrajectoryRecord]()
    seen = set[tuple[int, int]]()
    for location, record in FileReader(reading.folder, name).records(TrajectoryRecord):
        if record.validate:
            continue
        group, sample = key = record.prompt_group_id, record.sample_id
        if key in seen:
            location.report("unique", "sample_id", sample, f"each once in prompt group {group}")
        seen.add(key)
        check_trajectory_extension(location, record)
        reading.caps.add(record.max_response_len)
        records.append(record)
    reading.folder.raise_first()
    records.sort(key=lambda record: (record.prompt_group_id, record.sample_id))
    sizes = Counter(record.prompt_group_id for record in records)
    numbers = {group: number for number, group in enumerate(sorted(sizes))}
    groups = [numbers[record.prompt_group_id] for record in records]
    shards = [_multiturn_shard(records, groups, reading)] if records else []
    extensions = [record.extension for record in records]
    shape = max(sizes.values(), default=1), len(sizes)
    return ReadBatch(
        number=step,
        batch=_batch(reading, step, shape, shards, extensions, groups),
        session=reading.origin(step)[0],
        lasting=tuple(
            duration
            for row, record in enumerate(records)
            for duration in _durations(record, row, reading)
        ),
        context_tokens=[record.final_total_len for record in records],
    )


def _multiturn_shard(
    records: Sequence[TrajectoryRecord], groups: Sequence[int], reading: Reading
) -> BatchShard:
    extensions = [record.extension for record in records]
    engines = [
        extension.dp_rank if extension.engine_id is None else extension.engine_id
        for extension in extensions
    ]
    masks = [_runs(record) for record in records]
    mask_known = "response_loss_mask_rle" not in reading.unknown
    return BatchShard(
        process=0,
        rank=None,
        offset=0,
        prompt_tokens=[record.prompt_len for record in records],
        response_tokens=[record.final_response_len for record in records],
        truncated=_truncated([record.finish_reason for record in records]),
        start_ns=None,
        end_ns=None,
        rewards=_reward_columns([(extension, 1) for extension in extensions]),
        turns={row: tuple(_turns(record, reading)) for row, record in enumerate(records)},
        loss_runs=[mask or () for mask in masks] if mask_known and None not in masks else None,
        engines=None if all(engine is None for engine in engines) else engines,
        groups=groups if len(set(Counter(groups).values())) > 1 else None,
        policy_versions=_versions(
            [(extension.policy_version_min, extension.policy_version_max)
            for extension in extensions]
        ),
        sources=_sources(extensions),
    )  # fmt: skip


def _sources(rows: Sequence[Extension | TrajectoryExtension]) -> list[str | None] | None:
    """Where the prompt of each row is from; None if that is known of none."""
    sources = [extension.source for extension in rows]
    return sources if any(sources) else None


def _runs(record: TrajectoryRecord) -> list[int] | None:
    """Runs in and out of the loss in turn, those in it first; None where they do not fit."""
    runs = list[int]()
    for value, tokens in record.response_loss_mask_rle:
        if len(runs) % 2 == value:
            runs.append(0)
        runs.append(tokens)
    return runs if sum(runs) == record.final_response_len else None


def _turns(record: TrajectoryRecord, reading: Reading) -> Iterator[Turn]:
    for turn in record.turns:
        yield Turn(
            index=turn.turn,
            prompt_tokens=turn.prompt_tokens,
            response_tokens=turn.completion_tokens,
            cached_tokens=reading.known("turns.cached_tokens", turn.cached_tokens, 0),
            start_ns=None,
            end_ns=None,
        )


def _durations(record: TrajectoryRecord, row: int, reading: Reading) -> Iterator[UntimedDuration]:
    """Times of the turns and tool calls of one trajectory."""
    for turn in record.turns:
        seconds = reading.known("turns.engine_latency_s", turn.engine_latency_s, 0.0)
        if seconds is not None:
            yield UntimedDuration("turn", seconds, row=row, turn=turn.turn)
    statuses = record.extension.tool_status or [None] * len(record.tool_calls)
    for call, status in zip(record.tool_calls, statuses, strict=True):
        yield UntimedDuration(
            "tool_call",
            call.latency_s,
            row=row,
            turn=call.turn,
            name=reading.known("tool_calls.tool_name", call.tool_name, "unknown"),
            status=status if status in names.TOOL_STATUSES else _STATUSES.get(call.status),
            added_tokens=reading.known("tool_calls.append_len", call.append_len, 0),
            queries=reading.known("tool_calls.query_count", call.query_count, 1),
        )


def _policy(versions: Sequence[object]) -> int | None:
    """The policy version of a whole batch; None where it is unknown, or differs."""
    first = versions[0] if versions else None
    same = all(version == first for version in versions)
    return first if isinstance(first, int) and first >= 0 and same else None


def _truncated(reasons: Sequence[str | None]) -> list[int] | None:
    """Whether each response was cut; None unless known of all."""
    known = all(reason in ("length", "stop") for reason in reasons)
    return [int(reason == "length") for reason in reasons] if known else None


def _versions(
    bounds: Sequence[tuple[int | None, int | None]],
) -> list[tuple[int, int] | None] | None:
    """Oldest and newest policy version of each sample; None if they are known of none."""
    versions = [
        None if oldest is None or newest is None else (oldest, newest) for oldest, newest in bounds
    ]
    return versions if any(versions) else None


def _selected(
    own: Sequence[bool | None], indices: Sequence[int] | None, groups: Sequence[int] | None = None
) -> frozenset[int] | None:
    """Groups that were kept or used: as the records say, else as the filter does."""
    if own and None not in own:
        of_row = range(len(own)) if groups is None else groups
        return frozenset(group for group, value in zip(of_row, own, strict=True) if value)
    return None if indices is None else frozenset(indices)


def _reward_columns(
    extensions: Sequence[tuple[Extension | TrajectoryExtension, int]],
) -> list[RewardColumn]:
    """Rewards of all samples, from the ``x_rlvr`` of groups and their sizes."""
    size = sum(count for _, count in extensions)
    functions = defaultdict[str, tuple[_Column, _Column]](lambda: ([None] * size, [None] * size))
    row = 0
    for extension, count in extensions:
        for name, *parts in _functions(extension):
            for column, part in zip(functions[name], parts, strict=True):
                listed = part if isinstance(part, list) else [part]
                if len(listed) == count:
                    column[row : row + count] = listed
        row += count
    return [
        RewardColumn(name, index, values, None if all(time is None for time in times) else times)
        for index, (name, (values, times)) in enumerate(functions.items())
    ]


def _functions(
    extension: Extension | TrajectoryExtension,
) -> list[tuple[str, Any, Any]]:
    """Name, values and times of each reward function."""
    rewards, times = extension.rewards, extension.verify_s
    if rewards is not None:
        by_name = times if isinstance(times, dict) else {}
        return [(name, values, by_name.get(name)) for name, values in rewards.items()]
    if extension.reward is not None or extension.verifier is not None:
        return [(extension.verifier or "", extension.reward, times)]
    return []
