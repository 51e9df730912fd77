"""``manifest.json``: what the files are, where they come from, and what is not in them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlvr_probe.model.workload import Iteration, Workload
from rlvr_probe_polytrace.launch import Launch, Launches
from rlvr_probe_polytrace.layout import FORMAL_LOG, FORMAT, SCHEMA_VERSION, SUITE, of_group
from rlvr_probe_polytrace.multiturn import NotKnown
from rlvr_probe_polytrace.plan import Plan

__all__ = ["FileRecord", "Totals", "manifest_text", "write_lines"]


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One written file: its name, SHA-256 in hex, lines and size."""

    name: str
    sha256: str
    lines: int
    size_b: int


@dataclass(slots=True)
class Totals:
    """Sums over all written batches; prompt tokens count once per trajectory."""

    batches: int = 0
    trainer_steps: int = 0
    groups: int = 0
    trajectories: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0


def write_lines(directory: Path, name: str, lines: Iterable[str]) -> FileRecord:
    """Write a new file line by line and say what it became; ``lines`` come without line ends."""
    digest = hashlib.sha256()
    count = size = 0
    with (directory / name).open("xb") as file:
        for line in lines:
            data = (line + "\n").encode("utf-8")
            file.write(data)
            digest.update(data)
            count += 1
            size += len(data)
    return FileRecord(name, digest.hexdigest(), count, size)


def manifest_text(
    workload: Workload,
    plan: Plan,
    launches: Launches | None,
    totals: Totals,
    unknown: NotKnown,
    files: Sequence[FileRecord],
    *,
    keep_names: bool,
) -> str:
    """The manifest: the same for the same workload, so no time, host, user or path is in it."""
    manifest: dict[str, object] = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "probe": workload.probe,
        "flavor": plan.flavor,
        "response_tokens": plan.tokens,
        "source": {
            "framework": workload.framework,
            "framework_version": workload.framework_version,
            "algorithm": workload.algorithm,
            # A private architecture has a private name.
            **({"model_type": workload.model_type} if keep_names else {}),
            "engine": workload.engine,
        },
        "parallelism": {
            "world_size": workload.world_size,
            "rollout_tp": workload.rollout_tp,
            "dp_size": plan.placement.dp_size,
            "dp_of_engine": {str(e): dp for e, dp in sorted(plan.placement.dp_of.items())},
            "dp_reason": plan.placement.reason,
            "prompt_order": "by engine" if plan.placement.reordered else "of the trainer",
        },
        "caps": {
            "prompt_tokens": workload.max_prompt_tokens,
            "response_tokens": plan.response_cap,
        },
        "n": workload.group_size,
        "reuse": {
            "steps_per_generation": workload.steps_per_generation,
            "iterations_per_batch": workload.iterations_per_batch,
            "accumulation": workload.accumulation,
            "prompts_per_update": workload.prompts_per_update,
        },
        "clock": "start_s and end_s count from the start of the batch's first rollout on the same"
        " machine",
        "totals": _values(totals),
        "steps": {
            str(one.batch.index): {
                "session": one.batch.session,
                "trainer_step": one.batch.batch.step,
                "ordinal": one.batch.batch.ordinal,
                "prompts": one.prompts,
            }
            for one in plan.batches
        },
        "iterations": [_iteration(iteration) for iteration in plan.iterations],
        "replay": None if launches is None else _replay(launches),
        "reward_functions": list(plan.labels.values()),
        "reward_timings": plan.reward_s is not None,
        "filter_indices": plan.filter is not None,
        "not_known": unknown.listed(),
        "left_out": [_values(item) for item in plan.left_out],
        "lost_records": workload.lost_records,
        "notes": list(plan.notes),
        "redaction": {
            "names": "kept" if keep_names else "aliased",
            "aliased": [] if keep_names else ["reward functions", "tools"],
            "left_out": [] if keep_names else ["model_type"],
            "absent": [
                "text", "token ids", "hosts", "users", "paths", "absolute times", "GPU UUIDs",
            ],
        },
        "files": {
            file.name: {"sha256": file.sha256, "lines": file.lines, "bytes": file.size_b}
            for file in files
        },
    }  # fmt: skip
    return _text(manifest)


def _text(manifest: Mapping[str, object]) -> str:
    """JSON with one line per entry of the first two levels: readable, and small for long runs."""
    blocks = []
    for key, value in manifest.items():
        if isinstance(value, dict) and value:
            inner = ",\n".join(f"  {_json(name)}: {_json(item)}" for name, item in value.items())
            text = "{\n" + inner + "\n }"
        elif isinstance(value, list) and value:
            text = "[\n" + ",\n".join(f"  {_json(item)}" for item in value) + "\n ]"
        else:
            text = _json(value)
        blocks.append(f" {_json(key)}: {text}")
    return "{\n" + ",\n".join(blocks) + "\n}"


def _json(value: object) -> str:
    return json.dumps(value, allow_nan=False)


def _values(record: object) -> dict[str, object]:
    """Fields of a slotted dataclass, in order."""
    return {name: getattr(record, name) for name in type(record).__slots__}  # type: ignore[attr-defined]


def _iteration(iteration: Iteration) -> dict[str, object]:
    return {
        "batches": list(iteration.batches),
        "session": iteration.session,
        "trainer_steps": list(iteration.steps),
        "stage_s": {
            stage: round(value, 9)
            for stage, value in sorted(iteration.stage_s.items())
            if math.isfinite(value)
        },
    }


def _replay(launches: Launches) -> dict[str, object]:
    repo = launches.launches[0].repo
    return {
        "repo": repo,
        "launches": [_launch(launch) for launch in launches.launches],
        "not_replayed": list(launches.not_replayed),
        # The sleep for the reward lies inside rllm's gen, and so it does in the formal log.
        "gen_includes_reward": repo == "rllm",
        "notes": list(launches.notes),
    }


def _launch(launch: Launch) -> dict[str, object]:
    return {
        "config": of_group(SUITE, launch.group),
        "groups": len(launch.iterations),
        "prompts_per_batch": launch.prompts,
        "overrides": list(launch.overrides),
        "formal_log": of_group(FORMAL_LOG, launch.group) if launch.timed else None,
    }
