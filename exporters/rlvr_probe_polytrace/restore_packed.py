"""Reads ``packed_lengths_step_N.jsonl``, ``reward_timings_step_N.jsonl`` and the filter indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from rlvr_probe.model.batch import Batch, BatchShard
from rlvr_probe.model.workload import ReadBatch, UntimedDuration
from rlvr_probe_polytrace.extension_check import check_extension
from rlvr_probe_polytrace.fields import Place, integer, integers, is_integer, number
from rlvr_probe_polytrace.filter_check import FILTER_KEYS
from rlvr_probe_polytrace.findings import Findings
from rlvr_probe_polytrace.layout import FILTER
from rlvr_probe_polytrace.packed_check import PACKED_KEYS
from rlvr_probe_polytrace.reading import FileReader
from rlvr_probe_polytrace.restored import Told, column, counts, reward_columns
from rlvr_probe_polytrace.reward_check import REWARD_KEYS

__all__ = ["Ranks", "read_filter", "read_packed"]

_Record = Mapping[str, object]


@dataclass(slots=True)
class Ranks:
    """Data-parallel ranks of the whole workload; each is a process.

    Attributes:
        rank_of: Global rank by data-parallel rank.
    """

    rank_of: dict[int, int] = field(default_factory=dict)

    @property
    def tp(self) -> int | None:
        """Tensor-parallel size, as the ranks show it."""
        sizes = {rank // dp for dp, rank in self.rank_of.items() if dp and not rank % dp}
        return sizes.pop() if len(sizes) == 1 else None


def read_filter(directory: Path, findings: Findings) -> dict[int, _Record]:
    """Lines of the filter by workload step."""
    reader = FileReader(directory, FILTER, findings)
    found = dict[int, _Record]()
    for line, record in reader.records():
        if Place(findings, FILTER, line).check(record, FILTER_KEYS):
            found[integer(record, "workload_step")] = record
    return found


def read_packed(
    directory: Path,
    step: int,
    names: tuple[str, str | None],
    chosen: Mapping[int, _Record],
    told: Told,
    ranks: Ranks,
    findings: Findings,
) -> ReadBatch:
    """One step.

    Args:
        directory: Where its files are.
        step: Its number.
        names: Of the file of lengths, and of that of reward times, if there is one.
        chosen: The filter by step.
        told: What the manifest says.
        ranks: Gets the data-parallel ranks.
        findings: Takes what is wrong.
    """
    records = list[_Record]()
    for line, record in FileReader(directory, names[0], findings).records():
        place = Place(findings, names[0], line)
        if not place.check(record, PACKED_KEYS) or record["validate"]:
            continue
        place.equal(record, "step", step, " as in the file name")
        if "x_rlvr" in record:
            count = len(integers(record, "output"))
            check_extension(place.within("x_rlvr"), record["x_rlvr"], count)
        records.append(record)
    # As PolyTrace's readers do, whose order the filter's indices count in.
    records.sort(
        key=lambda one: tuple(integer(one, key) for key in ("dp_rank", "rank", "local_index"))
    )
    return ReadBatch(
        number=step,
        batch=_batch(records, step, chosen.get(step), told, ranks),
        session=(told.place(step) or (0,))[0],
        lasting=tuple(_reward_times(directory, names[1], findings)),
    )


def _batch(
    records: Sequence[_Record], step: int, chosen: _Record | None, told: Told, ranks: Ranks
) -> Batch:
    sizes = [len(integers(one, "output")) for one in records]
    size = max(sizes, default=1)
    ragged = len(set(sizes)) > 1
    shards, row, first = list[BatchShard](), 0, 0
    for dp_rank, its in groupby(records, key=lambda one: integer(one, "dp_rank")):
        mine = list(its)
        ranks.rank_of.setdefault(dp_rank, integer(mine[0], "rank"))
        shard = _shard(mine, dp_rank, row, range(first, first + len(mine)) if ragged else None)
        row, first = row + len(shard.response_tokens), first + len(mine)
        shards.append(shard)
    place = told.place(step)
    if place is None:
        place = (0, step, 0)
        if chosen is not None:
            place = (0, integer(chosen, "trainer_step"), integer(chosen, "gen_batch_index") - 1)
    given = [_extension(one) for one in records]
    policies = {one.get("policy_version") for one in given}
    policy = policies.pop() if len(policies) == 1 else None
    return Batch(
        "train",
        place[1],
        place[2],
        policy if is_integer(policy) and policy >= 0 else None,
        size,
        size * len(records),
        shards,
        kept=_chosen(given, chosen, "kept"),
        used=_chosen(given, chosen, "used"),
    )


def _shard(
    records: Sequence[_Record], dp_rank: int, offset: int, groups: Sequence[int] | None
) -> BatchShard:
    """The prompts of one data-parallel rank; ``groups`` is their numbers where sizes differ."""
    sizes = [len(integers(one, "output")) for one in records]
    given = [_extension(one) for one in records]
    engines = list[int | None]()
    cut = list[bool | None]()
    oldest, newest = list[int | None](), list[int | None]()
    for one, size in zip(given, sizes, strict=True):
        # Without our own word for it, the rank is the engine.
        engines += counts(one, "engine_id", size) if one else [dp_rank] * size
        reasons = column(one, "finish_reason", size, lambda value: value in ("stop", "length"))
        cut += [None if one is None else one == "length" for one in reasons or [None] * size]
        oldest += counts(one, "policy_version_min", size)
        newest += counts(one, "policy_version_max", size)
    versions = [
        None if low is None or high is None else (low, high)
        for low, high in zip(oldest, newest, strict=True)
    ]
    return BatchShard(
        process=dp_rank,
        rank=integer(records[0], "rank"),
        offset=offset,
        prompt_tokens=[
            integer(one, "input") for one, size in zip(records, sizes, strict=True)
            for _ in range(size)
        ],
        response_tokens=[length for one in records for length in integers(one, "output")],
        truncated=None if None in cut else [int(bool(one)) for one in cut],
        start_ns=None,
        end_ns=None,
        rewards=reward_columns(given, sizes),
        engines=engines,
        groups=None
        if groups is None
        else [group for group, size in zip(groups, sizes, strict=True) for _ in range(size)],
        policy_versions=versions if any(versions) else None,
    )  # fmt: skip


def _extension(record: _Record) -> dict[str, object]:
    found = record.get("x_rlvr")
    return found if isinstance(found, dict) else {}


def _chosen(given: Sequence[_Record], chosen: _Record | None, word: str) -> frozenset[int] | None:
    """Groups that were ``kept`` or ``used``: as the prompts say, else as the filter does."""
    own = [one.get(word) for one in given]
    if own and all(isinstance(value, bool) for value in own):
        return frozenset(group for group, value in enumerate(own) if value)
    return None if chosen is None else frozenset(integers(chosen, f"{word}_prompt_indices"))


def _reward_times(directory: Path, name: str | None, findings: Findings) -> list[UntimedDuration]:
    found = list[UntimedDuration]()
    if name is None:
        return found
    for line, record in FileReader(directory, name, findings).records():
        if Place(findings, name, line).check(record, REWARD_KEYS) and not record["validate"]:
            found.append(
                UntimedDuration(
                    "reward_call",
                    number(record, "reward_time_s"),
                    process=integer(record, "dp_rank"),
                    samples=integer(record, "batch_size"),
                )
            )
    return found
