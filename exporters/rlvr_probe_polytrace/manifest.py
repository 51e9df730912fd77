"""``manifest.json``: what the files are, where they come from, and what is not in them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from msgspec import to_builtins

from rlvr_probe.model.workload import Iteration
from rlvr_probe_polytrace.files import FORMAL_LOG, FORMAT, SUITE, of_group
from rlvr_probe_polytrace.plan import Plan
from rlvr_probe_polytrace.records import (
    SCHEMA_VERSION,
    Caps,
    FileEntry,
    LaunchEntry,
    Manifest,
    Replay,
    StepEntry,
    Totals,
)
from rlvr_probe_polytrace.replay import Launches
from rlvr_probe_polytrace.turns import NotKnown

__all__ = ["manifest_text"]


def manifest_text(
    plan: Plan,
    launches: Launches | None,
    totals: Totals,
    unknown: NotKnown,
    files: dict[str, FileEntry],
) -> str:
    """The manifest: the same for the same workload, so no time, host, user or path is in it."""
    workload, surveyed, keep_names = plan.workload, plan.surveyed, plan.keep_names
    manifest = Manifest(
        format=FORMAT,
        schema_version=SCHEMA_VERSION,
        probe=workload.probe,
        flavor=surveyed.flavor,
        response_tokens=surveyed.tokens,
        source={
            "framework": workload.framework,
            "framework_version": workload.framework_version,
            "algorithm": workload.algorithm,
            # A private architecture has a private name.
            **({"model_type": workload.model_type} if keep_names else {}),
            "engine": workload.engine,
        },
        parallelism={
            "world_size": workload.world_size,
            "rollout_tp": workload.rollout_tp,
            "dp_size": plan.placement.dp_size,
            "dp_of_engine": {str(e): dp for e, dp in sorted(plan.placement.dp_of.items())},
            "dp_reason": plan.placement.reason,
            "prompt_order": "by engine" if plan.placement.reordered else "of the trainer",
        },
        caps=Caps(prompt_tokens=workload.max_prompt_tokens, response_tokens=plan.response_cap),
        n=workload.group_size,
        reuse={
            "steps_per_generation": workload.steps_per_generation,
            "iterations_per_batch": workload.iterations_per_batch,
            "accumulation": workload.accumulation,
            "prompts_per_update": workload.prompts_per_update,
        },
        clock="start_s and end_s count from the start of the batch's first rollout on the same"
        " machine",
        totals=totals,
        steps={
            str(planned.batch.index): StepEntry(
                session=planned.batch.session,
                trainer_step=planned.batch.batch.step,
                ordinal=planned.batch.batch.ordinal,
                prompts=planned.prompts,
            )
            for planned in plan.batches
        },
        iterations=[_iteration(iteration) for iteration in plan.iterations],
        replay=None if launches is None else _replay(launches),
        reward_functions=list(plan.labels.values()),
        reward_timings=plan.reward_times is not None,
        filter_indices=plan.filter is not None,
        not_known=unknown.listed(),
        left_out=plan.left_out,
        lost_records=workload.lost_records,
        notes=plan.notes,
        redaction={
            "names": "kept" if keep_names else "aliased",
            "aliased": [] if keep_names else ["reward functions", "tools", "data sources"],
            "left_out": [] if keep_names else ["model_type"],
            "absent": [
                "text", "token ids", "hosts", "users", "paths", "absolute times", "GPU UUIDs",
            ],
        },
        files=files,
    )  # fmt: skip
    return _text(to_builtins(manifest))


def _text(manifest: Mapping[str, object]) -> str:
    """JSON with one line per entry of the first two levels: readable, and small for long runs."""
    blocks = []
    for key, value in manifest.items():
        if isinstance(value, dict) and value:
            inner = ",\n".join(f"  {_json(name)}: {_json(item)}" for name, item in value.items())
            text = "{\n" + inner + "\n }"
        elif isinstance(value, (list, tuple)) and value:
            text = "[\n" + ",\n".join(f"  {_json(item)}" for item in value) + "\n ]"
        else:
            text = _json(value)
        blocks.append(f" {_json(key)}: {text}")
    return "{\n" + ",\n".join(blocks) + "\n}"


def _json(value: object) -> str:
    return json.dumps(value, allow_nan=False)


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


def _replay(launches: Launches) -> Replay:
    repo = launches.launches[0].repo
    return Replay(
        repo=repo,
        launches=[
            LaunchEntry(
                config=of_group(SUITE, launch.group),
                groups=len(launch.iterations),
                prompts_per_batch=launch.prompts,
                overrides=launch.overrides,
                formal_log=of_group(FORMAL_LOG, launch.group) if launch.timed else None,
            )
            for launch in launches.launches
        ],
        not_replayed=launches.not_replayed,
        # The sleep for the reward lies inside rllm's gen, and so it does in the formal log.
        gen_includes_reward=repo == "rllm",
        notes=launches.notes,
    )
