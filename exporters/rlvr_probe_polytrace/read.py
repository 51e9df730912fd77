"""Reads a directory of step files back: lengths, placement, filter, turns, tools, times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rlvr_probe.model.workload import ReadBatch, ReadWorkload
from rlvr_probe_polytrace.files import (
    FILTER,
    MANIFEST,
    MULTITURN,
    PACKED,
    REWARDS,
    FileReader,
    Folder,
)
from rlvr_probe_polytrace.read_batches import Reading, read_multiturn, read_packed
from rlvr_probe_polytrace.records import Caps, FilterRecord, Manifest, StepEntry
from rlvr_probe_polytrace.validate_manifest import read_manifest

__all__ = ["read_workload"]

_NOTES = {
    PACKED: "lengths alone: the format has no times of trajectories, stages and steps, no turns and"
    " no tool calls",
    MULTITURN: "durations alone: the format does not say when an engine or a tool started",
}


def read_workload(directory: Path) -> ReadWorkload:
    """The workload in ``directory``.

    Raises:
        ValidationError: It cannot be read, or a record breaks the format.
    """
    folder = Folder(directory)
    kind = PACKED if folder.steps[PACKED] else MULTITURN
    if not folder.steps[kind]:
        raise folder.no_step_file()
    manifest = read_manifest(folder)
    reading = _reading(folder, manifest)
    if kind == PACKED and FILTER in folder.names:
        lines = FileReader(folder, FILTER).records(FilterRecord)
        reading.filter = {record.workload_step: record for _, record in lines}
    batches = list[ReadBatch]()
    for step, name in sorted(folder.steps[kind].items()):
        if kind == PACKED:
            batches.append(read_packed(reading, step, name, folder.steps[REWARDS].get(step)))
        else:
            batches.append(read_multiturn(reading, step, name))
        folder.raise_first()
    return _workload(directory.resolve().name, kind, batches, reading)


def _reading(folder: Folder, manifest: Manifest | None) -> Reading:
    if manifest is None:
        return Reading(folder)
    location = folder.at(MANIFEST)
    entries = {
        int(number): location.within(f"steps.{number}").convert(value, StepEntry)
        for number, value in manifest.steps.items()
    }
    return Reading(
        folder,
        manifest,
        unknown=frozenset(str(entry.get("field")) for entry in manifest.not_known),
        steps={step: entry for step, entry in entries.items() if entry is not None},
    )


def _workload(name: str, kind: str, batches: Sequence[ReadBatch], reading: Reading) -> ReadWorkload:
    sizes = Counter(batch.batch.group_size for batch in batches)
    notes = [_NOTES[kind]]
    short = [batch.number for batch in batches if not batch.batch.complete]
    if short:
        some = ", ".join(map(str, short[:5])) + (", ..." if len(short) > 5 else "")
        notes.append(f"steps that lack samples of some prompts: {some}")
    manifest = reading.manifest
    source = {} if manifest is None else manifest.source
    parallelism = {} if manifest is None else manifest.parallelism
    caps = Caps(response_tokens=None) if manifest is None else manifest.caps
    cap = caps.response_tokens
    if cap is None and len(reading.caps) == 1:
        [cap] = reading.caps
    tp, world_size = parallelism.get("rollout_tp", reading.tp), parallelism.get("world_size")
    return ReadWorkload(
        name=name,
        batches=tuple(batches),
        ranks=dict(reading.ranks),
        notes=tuple(notes),
        framework=source.get("framework"),
        framework_version=source.get("framework_version"),
        algorithm=source.get("algorithm"),
        engine=source.get("engine"),
        rollout_tp=tp if type(tp) is int else None,
        accelerators=world_size if type(world_size) is int else None,
        group_size=sizes.most_common(1)[0][0],
        max_prompt_tokens=caps.prompt_tokens,
        max_response_tokens=cap,
    )
