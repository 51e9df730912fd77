"""Writes a workload into a directory, one line at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, to_builtins

from rlvr_probe.exporter import Written
from rlvr_probe.model.workload import Workload
from rlvr_probe_polytrace.files import (
    ENV,
    FILTER,
    FORMAL_LOG,
    MANIFEST,
    MULTITURN,
    PACKED,
    REWARDS,
    SUITE,
    of_group,
    step_file,
)
from rlvr_probe_polytrace.filter_indices import filter_records
from rlvr_probe_polytrace.manifest import manifest_text
from rlvr_probe_polytrace.placement import Placement, PlannedBatch
from rlvr_probe_polytrace.plan import Plan, make_plan
from rlvr_probe_polytrace.records import FileEntry, PackedRecord, RewardRecord, Share, Totals
from rlvr_probe_polytrace.replay import Launch, env_text, formal_lines, make_launches, suite_text
from rlvr_probe_polytrace.turns import NotKnown, multiturn_records
from rlvr_probe_polytrace.x_rlvr import Extender

__all__ = ["write_workload"]


def write_workload(
    workload: Workload, directory: Path, *, keep_names: bool, flavor: str | None = None
) -> Written:
    """Write every file of the workload into ``directory``, which exists and is empty.

    Holds one batch at a time besides ``workload`` itself; ten thousand groups of eight take about
    a second.

    Raises:
        WorkloadError: The format cannot say this workload.
    """
    plan = make_plan(workload, keep_names=keep_names, flavor=flavor)
    totals = Totals(
        batches=len(plan.batches),
        trainer_steps=sum(len(iteration.steps) for iteration in plan.iterations),
    )
    unknown = NotKnown()
    files: dict[str, FileEntry] = {}

    def write(name: str, lines: Iterable[str]) -> None:
        files[name] = _write_lines(directory / name, lines)

    for number in range(len(plan.batches)):
        for name, records in _step_records(plan, number, totals, unknown):
            write(name, _jsonl(records))
    if plan.filter is not None:
        write(FILTER, _jsonl(filter_records(plan.batches, plan.filter, workload.group_size)))
    launches = make_launches(plan)
    notes = list(plan.notes)
    if launches is None:
        notes.append("no suite config: no iteration has batches of one size")
    else:
        notes += launches.notes
        for launch in launches.launches:
            for name, text in _launch_texts(plan, launch):
                write(of_group(name, launch.group), text)
        if not all(launch.timed for launch in launches.launches):
            notes.append("no formal log: the stage times of some iterations are unknown")
    _write_lines(directory / MANIFEST, [manifest_text(plan, launches, totals, unknown, files)])
    return Written(
        steps=totals.batches,
        groups=totals.groups,
        trajectories=totals.trajectories,
        files=len(files) + 1,
        notes=tuple(notes),
    )


def _step_records(
    plan: Plan, number: int, totals: Totals, unknown: NotKnown
) -> Iterator[tuple[str, Iterator[Struct]]]:
    """Name and records of every file of one step; they are to be taken before the next name."""
    planned = plan.batches[number]
    shares: dict[int, Share] = {}
    if plan.surveyed.packed:
        yield step_file(PACKED, number), _packed_records(planned, plan, shares)
    else:
        records = multiturn_records(
            planned,
            plan.placement,
            plan.labels,
            plan.tools,
            plan.sources,
            plan.caps,
            shares,
            unknown,
        )
        yield step_file(MULTITURN, number), records
    if plan.reward_times is not None:
        times = plan.reward_times[number].reward_s
        yield step_file(REWARDS, number), _reward_records(planned, plan.placement, shares, times)
    for share in shares.values():
        totals.groups += share.prompts
        totals.trajectories += share.samples
        totals.prompt_tokens += share.prompt_tokens * plan.workload.group_size
        totals.response_tokens += share.response_tokens


def _packed_records(
    planned: PlannedBatch, plan: Plan, shares: dict[int, Share]
) -> Iterator[PackedRecord]:
    """One record per prompt in the order of PolyTrace's sort, which is the written order.

    Args:
        planned: Read lazily.
        plan: Where its groups go, and the names of reward functions.
        shares: Filled while the records are taken: by data-parallel rank.
    """
    placement = plan.placement
    extender = Extender(planned.batch, placement.tp, plan.labels, plan.sources)
    shards = planned.batch.batch.shards
    prompts = [tokens for shard in shards for tokens in shard.prompt_tokens]
    responses = [tokens for shard in shards for tokens in shard.response_tokens]
    for group, rows in planned.rows():
        prompt, output = prompts[rows.start], responses[rows]
        dp_rank = placement.dp_rank(extender.engine(rows.start))
        share = shares.setdefault(dp_rank, Share())
        local_index = share.prompts
        share.add(prompt, output)
        yield PackedRecord(
            step=planned.batch.index,
            rank=dp_rank * placement.tp,
            tp_rank=0,
            dp_rank=dp_rank,
            local_index=local_index,
            input=prompt,
            output=output,
            n_sampling=len(output),
            validate=False,
            x_rlvr=extender.of_group(group, rows, output),
        )


def _reward_records(
    planned: PlannedBatch,
    placement: Placement,
    shares: Mapping[int, Share],
    times: Mapping[int, float],
) -> Iterator[RewardRecord]:
    """One record per data-parallel rank: wall seconds of reward work, and what was rewarded."""
    for dp_rank, time_s in times.items():
        share = shares[dp_rank]
        yield RewardRecord(
            step=planned.batch.index,
            rank=dp_rank * placement.tp,
            tp_rank=0,
            dp_rank=dp_rank,
            batch_size=share.samples,
            reward_time_s=time_s,
            response_sum=share.response_tokens,
            response_mean=share.response_tokens / share.samples,
            response_max=share.longest,
            validate=False,
        )


def _launch_texts(plan: Plan, launch: Launch) -> Iterator[tuple[str, Iterable[str]]]:
    """Name and lines of every file of a launch."""
    yield SUITE, suite_text(launch, reward_files=plan.reward_times is not None).splitlines()
    yield ENV, env_text(launch).splitlines()
    if launch.timed:
        yield FORMAL_LOG, formal_lines(launch.iterations, plan, launch.repo)


def _jsonl(records: Iterable[Struct]) -> Iterator[str]:
    encode = json.JSONEncoder(allow_nan=False).encode
    for record in records:
        yield encode(to_builtins(record))


def _write_lines(path: Path, lines: Iterable[str]) -> FileEntry:
    """Write a new file line by line and say what it became; ``lines`` come without line ends."""
    digest = hashlib.sha256()
    count = size_b = 0
    with path.open("xb") as file:
        for line in lines:
            data = (line + "\n").encode("utf-8")
            file.write(data)
            digest.update(data)
            count += 1
            size_b += len(data)
    return FileEntry(sha256=digest.hexdigest(), lines=count, bytes=size_b)
