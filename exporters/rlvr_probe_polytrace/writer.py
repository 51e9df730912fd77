"""Writes a workload into a directory, one line at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rlvr_probe.exporter import Written
from rlvr_probe.model.workload import Workload
from rlvr_probe_polytrace.launch import env_text, formal_lines, make_launch, suite_text
from rlvr_probe_polytrace.layout import (
    ENV,
    FORMAL_LOG,
    MANIFEST,
    PACKED,
    REWARDS,
    SUITE,
    step_file,
)
from rlvr_probe_polytrace.manifest import FileRecord, Totals, manifest_text, write_lines
from rlvr_probe_polytrace.plan import make_plan
from rlvr_probe_polytrace.records import Share, packed_records, reward_records

__all__ = ["write_workload"]


def write_workload(workload: Workload, directory: Path, *, keep_names: bool) -> Written:
    """Write every file of the workload into ``directory``, which exists and is empty.

    Holds one batch at a time besides ``workload`` itself; ten thousand groups of eight take about
    a second.

    Raises:
        WorkloadError: The format cannot say this workload.
    """
    plan = make_plan(workload, keep_names=keep_names)
    totals = Totals(
        batches=len(plan.batches),
        trainer_steps=sum(len(iteration.steps) for iteration in plan.iterations),
    )
    files: list[FileRecord] = []
    for batch in plan.batches:
        shares: dict[int, Share] = {}
        records = packed_records(batch, plan.placement, plan.labels, shares)
        files.append(write_lines(directory, step_file(PACKED, batch.index), _jsonl(records)))
        if plan.rewards:
            records = reward_records(batch, plan.placement, shares)
            files.append(write_lines(directory, step_file(REWARDS, batch.index), _jsonl(records)))
        for share in shares.values():
            totals.groups += share.prompts
            totals.trajectories += share.samples
            totals.prompt_tokens += share.prompt_tokens * workload.group_size
            totals.response_tokens += share.response_tokens
    launch = make_launch(workload, plan)
    notes = list(plan.notes)
    if launch is None:
        notes.append("no suite config: no iteration has batches of one size")
    else:
        notes += launch.notes
        files.append(
            write_lines(
                directory, SUITE, suite_text(launch, reward_files=plan.rewards).splitlines()
            )
        )
        files.append(write_lines(directory, ENV, env_text(launch).splitlines()))
        if launch.timed:
            files.append(write_lines(directory, FORMAL_LOG, formal_lines(launch, plan)))
        else:
            notes.append("no formal log: the stage times of some iterations are unknown")
    text = manifest_text(workload, plan, launch, totals, files, keep_names=keep_names)
    write_lines(directory, MANIFEST, [text])
    return Written(
        steps=totals.batches,
        groups=totals.groups,
        trajectories=totals.trajectories,
        files=len(files) + 1,
        notes=tuple(notes),
    )


def _jsonl(records: Iterable[Mapping[str, object]]) -> Iterator[str]:
    encode = json.JSONEncoder(allow_nan=False).encode
    for record in records:
        yield encode(record)
