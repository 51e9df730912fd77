"""Texts that start a replay: the suite config and the environment block."""

from __future__ import annotations

import json

from rlvr_probe_polytrace.launch import Launch
from rlvr_probe_polytrace.layout import FILTER, FORMAL_LOG, REWARDS, of_group

__all__ = ["env_text", "suite_text"]


def _environment(launch: Launch) -> dict[str, str]:
    """Variables of the replay. The live tool is on by default and would call the real one."""
    found = {
        "WORKLOAD_BENCHMARK": "1",
        "WORKLOAD_BENCHMARK_LIVE_TOOL": "0",
        "WORKLOAD_COLLECT_FILTER_INDICES": "0",
        "WORKLOAD_COLLECT_LENGTHS": "0",
        "WORKLOAD_COLLECT_REWARD_TIMINGS": "0",
        "WORKLOAD_COLLECT_VALIDATE_LENGTHS": "0",
        "REPLAY_OVERRIDES": " ".join(launch.overrides),
    }
    if launch.repo == "search_r1":
        found["WORKLOAD_BENCHMARK_SLEEP_TOOL"] = "1"
        found["WORKLOAD_COLLECT_MULTITURN"] = "0"
        found["WORKLOAD_COLLECT_VALIDATE_MULTITURN"] = "0"
    else:
        # One request per sample with its exact length; the other policies estimate per prompt.
        found |= {"WORKLOAD_MAX_TOKEN_POLICY": "separate"}
    if launch.repo == "rllm":
        found["WORKLOAD_BENCHMARK_SKIP_REWARD"] = "1"
        found["WORKLOAD_BENCHMARK_SLEEP_REWARD"] = "1"
    if launch.filtered:
        # The filter is looked up by these, which nothing derives from the groups.
        found["WORKLOAD_STEPS"] = launch.step_groups
    return dict(sorted(found.items()))


def suite_text(launch: Launch, *, reward_files: bool) -> str:
    """The suite config: JSON, which is YAML too. ``$WORKLOAD_PATH`` is where the workload lies."""
    repo = f"${{POLYTRACE_WORKSPACE}}/{launch.repo}"
    workload: dict[str, object] = {
        "type": "multiturn" if launch.repo == "search_r1" else "packed_lengths",
        "expected_records_per_step": launch.records,
    }
    if reward_files:
        workload["reward_timing_glob"] = f"{REWARDS}_step_*.jsonl"
    if launch.filtered:
        workload["filter_indices_file"] = FILTER
    config: dict[str, object] = {
        "name": launch.name,
        "repo": launch.repo,
        "repo_path": repo,
        "benchmark_script": "$BENCHMARK_SCRIPT",
        "workload_path": "$WORKLOAD_PATH",
        "benchmark_log_path": f"{repo}/logs/benchmark_{launch.name}.log",
        "step_groups": launch.step_groups,
        "repeat": 1,
        "env": _environment(launch),
        "workload": workload,
    }
    if launch.timed:
        config["formal_log_path"] = f"$WORKLOAD_PATH/{of_group(FORMAL_LOG, launch.group)}"
    return json.dumps(config, indent=2, allow_nan=False) + "\n"


def env_text(launch: Launch) -> str:
    """Shell text to source before the suite or the replaying trainer; it finds its own folder."""
    lines = ["# Source this: . path/to/the/file"]
    if launch.filtered:
        lines += [
            "# One launch per group: the filter of a batch is looked up by WORKLOAD_STEPS, so that",
            "# a launch of several groups would filter them all by the first one's.",
        ]
    lines += [
        'export WORKLOAD_PATH="$(CDPATH= cd -- "$(dirname -- "${BASH_SOURCE:-$0}")" && pwd)"',
        f"export WORKLOAD_STEP_GROUPS='{launch.step_groups}'",
    ]
    lines += [f"export {key}='{value}'" for key, value in _environment(launch).items()]
    return "\n".join(lines) + "\n"
