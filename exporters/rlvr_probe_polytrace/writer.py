"""Writes a workload into a directory, one line at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rlvr_probe.exporter import Written
from rlvr_probe.model.workload import Workload
from rlvr_probe_polytrace.filtering import filter_records
from rlvr_probe_polytrace.formal import formal_lines
from rlvr_probe_polytrace.launch import Launch, make_launches
from rlvr_probe_polytrace.layout import (
    ENV,
    FILTER,
    FORMAL_LOG,
    MANIFEST,
    MULTITURN,
    MULTITURN_FLAVOR,
    PACKED,
    REWARDS,
    SUITE,
    of_group,
    step_file,
)
from rlvr_probe_polytrace.manifest import FileRecord, Totals, manifest_text, write_lines
from rlvr_probe_polytrace.multiturn import NotKnown, multiturn_records
from rlvr_probe_polytrace.packed import packed_records
from rlvr_probe_polytrace.plan import Plan, make_plan
from rlvr_probe_polytrace.records import Share
from rlvr_probe_polytrace.rewards import reward_records
from rlvr_probe_polytrace.suite import env_text, suite_text

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
    files = list[FileRecord]()
    for number in range(len(plan.batches)):
        files += _write_step(directory, workload, plan, number, totals, unknown)
    if plan.filter is not None:
        records = filter_records(plan.batches, plan.filter, workload.group_size)
        files.append(write_lines(directory, FILTER, _jsonl(records)))
    launches = make_launches(workload, plan)
    notes = list(plan.notes)
    if launches is None:
        notes.append("no suite config: no iteration has batches of one size")
    else:
        notes += launches.notes
        for launch in launches.launches:
            files += _write_launch(directory, plan, launch)
        if not all(launch.timed for launch in launches.launches):
            notes.append("no formal log: the stage times of some iterations are unknown")
    text = manifest_text(workload, plan, launches, totals, unknown, files, keep_names=keep_names)
    write_lines(directory, MANIFEST, [text])
    return Written(
        steps=totals.batches,
        groups=totals.groups,
        trajectories=totals.trajectories,
        files=len(files) + 1,
        notes=tuple(notes),
    )


def _write_step(
    directory: Path, workload: Workload, plan: Plan, number: int, totals: Totals, unknown: NotKnown
) -> Iterator[FileRecord]:
    planned = plan.batches[number]
    shares: dict[int, Share] = {}
    if plan.flavor == MULTITURN_FLAVOR:
        records = multiturn_records(
            planned, plan.placement, plan.labels, plan.tools, plan.caps, shares, unknown
        )
        yield write_lines(directory, step_file(MULTITURN, number), _jsonl(records))
    else:
        records = packed_records(planned, plan.placement, plan.labels, shares)
        yield write_lines(directory, step_file(PACKED, number), _jsonl(records))
    if plan.reward_s is not None:
        records = reward_records(planned, plan.placement, shares, plan.reward_s[number])
        yield write_lines(directory, step_file(REWARDS, number), _jsonl(records))
    for share in shares.values():
        totals.groups += share.prompts
        totals.trajectories += share.samples
        totals.prompt_tokens += share.prompt_tokens * workload.group_size
        totals.response_tokens += share.response_tokens


def _write_launch(directory: Path, plan: Plan, launch: Launch) -> Iterator[FileRecord]:
    def write(name: str, lines: Iterable[str]) -> FileRecord:
        return write_lines(directory, of_group(name, launch.group), lines)

    text = suite_text(launch, reward_files=plan.reward_s is not None)
    yield write(SUITE, text.splitlines())
    yield write(ENV, env_text(launch).splitlines())
    if launch.timed:
        yield write(FORMAL_LOG, formal_lines(launch.iterations, plan, launch.repo))


def _jsonl(records: Iterable[Mapping[str, object]]) -> Iterator[str]:
    encode = json.JSONEncoder(allow_nan=False).encode
    for record in records:
        yield encode(record)
