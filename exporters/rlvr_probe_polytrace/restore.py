"""Reads a directory of step files back: lengths, placement, filter, turns, tools, times."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlvr_probe.exceptions import ValidationError
from rlvr_probe.model.workload import ReadBatch, ReadWorkload
from rlvr_probe_polytrace.fields import is_integer
from rlvr_probe_polytrace.findings import Findings
from rlvr_probe_polytrace.layout import FILTER, MANIFEST, MULTITURN, PACKED, REWARDS, STEP_NAME
from rlvr_probe_polytrace.manifest_check import Manifest, read_manifest
from rlvr_probe_polytrace.restore_multiturn import read_multiturn
from rlvr_probe_polytrace.restore_packed import Ranks, read_filter, read_packed
from rlvr_probe_polytrace.restored import Told

__all__ = ["read_workload"]

_NUMBER = re.compile(r"0|[1-9]\d{0,8}", re.ASCII)

_NOTES = {
    PACKED: "lengths alone: the format has no times of trajectories, stages and steps, no turns and"
    " no tool calls",
    MULTITURN: "the format has no moments: how long an engine or a tool took is known, when it"
    " began is not",
}


def read_workload(directory: Path) -> ReadWorkload:
    """The workload in ``directory``.

    Raises:
        ValidationError: It cannot be read, or a record breaks the format.
    """
    findings = Findings()
    names = _names(directory)
    files = {kind: _steps(names, kind) for kind in (PACKED, REWARDS, MULTITURN)}
    kind = PACKED if files[PACKED] else MULTITURN
    if not files[kind]:
        raise ValidationError(
            f"{directory}: found no step file among {len(names)} entries, expected"
            f" {PACKED}_step_0.jsonl or {MULTITURN}_step_0.jsonl; give the folder of one run"
        )
    manifest = read_manifest(directory, findings) if MANIFEST in names else None
    told = _told(manifest)
    ranks = Ranks()
    batches = list[ReadBatch]()
    if kind == PACKED:
        chosen = read_filter(directory, findings) if FILTER in names else {}
        for step, name in sorted(files[PACKED].items()):
            rewards = files[REWARDS].get(step)
            batches.append(
                read_packed(directory, step, (name, rewards), chosen, told, ranks, findings)
            )
            _raise(directory, findings)
    else:
        for step, name in sorted(files[MULTITURN].items()):
            batches.append(read_multiturn(directory, step, name, told, findings))
            _raise(directory, findings)
    _raise(directory, findings)
    return _given(directory.resolve().name, kind, batches, ranks, told, manifest)


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError as error:
        raise ValidationError(
            f"{directory}: found nothing readable ({os.strerror(error.errno or 0)}), expected a "
            "directory; give the folder that holds the step files"
        ) from None


def _steps(names: Sequence[str], kind: str) -> dict[int, str]:
    """Files of one kind by step; shards of single ranks are left out."""
    found = (STEP_NAME.fullmatch(name) for name in names)
    return {
        int(one[2]): one[0]
        for one in found
        if one is not None and one[1] == kind and _NUMBER.fullmatch(one[2])
    }


def _raise(directory: Path, findings: Findings) -> None:
    """Raise the first problem, if there is any that is no warning."""
    problems = [one for one in findings.problems() if not one.warning]
    if problems:
        more = f"; {findings.errors - 1} more" if findings.errors > 1 else ""
        raise ValidationError(f"{directory}: {problems[0]}{more}: rlvr-probe validate names all")


def _told(manifest: Manifest | None) -> Told:
    if manifest is None:
        return Told()
    unknown = manifest.value.get("not_known")
    listed = unknown if isinstance(unknown, list) else []
    steps = {
        int(number): one for number, one in manifest.section("steps").items() if type(one) is dict
    }
    return Told(frozenset(str(one.get("field")) for one in listed if isinstance(one, dict)), steps)


def _given(
    name: str,
    kind: str,
    batches: Sequence[ReadBatch],
    ranks: Ranks,
    told: Told,
    manifest: Manifest | None,
) -> ReadWorkload:
    sizes = Counter(one.batch.group_size for one in batches)
    notes = [_NOTES[kind]]
    short = [one.number for one in batches if not one.batch.complete]
    if short:
        some = ", ".join(map(str, short[:5])) + (", ..." if len(short) > 5 else "")
        notes.append(f"steps that lack samples of some prompts: {some}")
    caps: Mapping[str, object] = {} if manifest is None else manifest.section("caps")
    source = _section(manifest, "source")
    parallel = _section(manifest, "parallelism")
    cap = caps.get("response_tokens")
    if not is_integer(cap) and len(told.caps) == 1:
        [cap] = told.caps
    prompt = caps.get("prompt_tokens")
    tp = parallel.get("rollout_tp", ranks.tp)
    size = parallel.get("world_size")
    return ReadWorkload(
        name=name,
        batches=tuple(batches),
        ranks=dict(ranks.rank_of),
        notes=tuple(notes),
        framework=_text(source.get("framework")),
        framework_version=_text(source.get("framework_version")),
        algorithm=_text(source.get("algorithm")),
        engine=_text(source.get("engine")),
        rollout_tp=tp if is_integer(tp) else None,
        accelerators=size if is_integer(size) else None,
        group_size=sizes.most_common(1)[0][0],
        max_prompt_tokens=prompt if is_integer(prompt) else None,
        max_response_tokens=cap if is_integer(cap) else None,
    )


def _section(manifest: Manifest | None, name: str) -> Mapping[str, object]:
    value = None if manifest is None else manifest.value.get(name)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
