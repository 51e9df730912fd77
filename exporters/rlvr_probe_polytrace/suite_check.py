"""Checks of the suite config and of the formal log that is paired with its groups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlvr_probe_polytrace.fields import TEXT, Kind, Place
from rlvr_probe_polytrace.findings import Findings, shown
from rlvr_probe_polytrace.layout import console_metrics
from rlvr_probe_polytrace.reading import MalformedJson, loads, read_small

__all__ = ["Suite", "check_formal_log", "check_suite", "read_json"]

_JSON_B = 256 * 2**20
"""Largest manifest, config or log read whole, bytes: about a million steps."""

_KEYS: dict[str, Kind] = dict.fromkeys(
    ("name", "repo", "repo_path", "benchmark_script", "benchmark_log_path"), TEXT
)
_GROUPS = Kind(
    lambda value: (
        isinstance(value, str) and bool(re.fullmatch(r"\d{1,9}([,;]\d{1,9})*", value, re.ASCII))
    ),
    "step numbers, separated by ',' in a group and by ';' between groups",
)


@dataclass(frozen=True, slots=True)
class Suite:
    """The benchmark groups of a suite config: workload steps of each."""

    groups: tuple[tuple[int, ...], ...]


def read_json(directory: Path, name: str, findings: Findings) -> dict[str, object] | None:
    """The JSON object in a file, or None and a problem."""
    data = read_small(directory / name, _JSON_B)
    if isinstance(data, str):
        findings.add("file", name, None, None, data, "a regular file")
        return None
    try:
        value = loads(data)
    except MalformedJson as error:
        findings.add("json", name, None, None, str(error), "one JSON object")
        return None
    if not isinstance(value, dict):
        findings.add("json", name, None, None, shown(value), "one JSON object")
        return None
    return value


def check_suite(
    directory: Path, name: str, present: Mapping[int, str], findings: Findings
) -> Suite | None:
    """Check a suite config against the step files that are ``present``, name by step."""
    config = read_json(directory, name, findings)
    if config is None:
        return None
    place = Place(findings, name, None)
    config.setdefault("step_groups", "0")
    if not place.check(config, _KEYS | {"step_groups": _GROUPS}):
        return None
    text = str(config["step_groups"])
    groups = tuple(tuple(map(int, group.split(","))) for group in text.split(";"))
    for group in groups:
        for step in group:
            if step not in present:
                place.report("groups", "step_groups", f"step {step}", "steps that have a file")
        if config["repo"] == "rllm" and len(group) > 1:
            place.report("groups", "step_groups", list(group), "one step per group for rllm")
    env = config.get("env", {})
    if not isinstance(env, dict):
        place.report("env", "env", shown(env), "an object")
    else:
        _check_filter_steps(place, config, env, text)
        if env.get("WORKLOAD_BENCHMARK_LIVE_TOOL", "1") not in ("0", 0):
            place.report(
                "live tool",
                "env.WORKLOAD_BENCHMARK_LIVE_TOOL",
                shown(env.get("WORKLOAD_BENCHMARK_LIVE_TOOL")),
                '"0": the replay would call the real tool',
                warning=True,
            )
    return Suite(groups)


def _check_filter_steps(
    place: Place, config: Mapping[str, object], env: Mapping[str, object], groups: str
) -> None:
    """With a filter, one group per launch: PolyTrace looks it up by WORKLOAD_STEPS alone."""
    workload = config.get("workload")
    if not isinstance(workload, dict) or "filter_indices_file" not in workload:
        return
    if ";" in groups:
        expected = "one group per launch: all would be filtered by the first one's"
        place.report("filter steps", "step_groups", groups, expected)
    elif env.get("WORKLOAD_STEPS") != groups:
        found = shown(env.get("WORKLOAD_STEPS"))
        expected = f"{shown(groups)}, step_groups: the filter is looked up by it"
        place.report("filter steps", "env.WORKLOAD_STEPS", found, expected)


def check_formal_log(directory: Path, name: str, groups: int, findings: Findings) -> None:
    """Check that every line gives its times to PolyTrace, one line per benchmark group."""
    data = read_small(directory / name, _JSON_B)
    if isinstance(data, str):
        findings.add("file", name, None, None, data, "a regular file")
        return
    lines = data.decode("utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        times = [key for key in console_metrics(line) if key.startswith("timing_s/")]
        if not times or len(times) != line.count("timing_s/"):
            expected = "step:N - timing_s/STAGE:SECONDS in plain decimals"
            findings.add("parse", name, number, None, shown(line), expected)
    if len(lines) != groups:
        expected = f"{groups}, one per benchmark group: they are paired by position"
        findings.add("lines", name, None, None, f"{len(lines)} lines", expected)
