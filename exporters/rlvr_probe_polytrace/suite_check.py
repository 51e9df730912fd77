"""Checks of the suite config and of the formal log that is paired with its groups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlvr_probe_polytrace.fields import TEXT, Kind, Place
from rlvr_probe_polytrace.findings import Findings, shown
from rlvr_probe_polytrace.layout import FORMAL_LOG, SUITE, console_metrics
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


def check_suite(directory: Path, present: Mapping[int, str], findings: Findings) -> Suite | None:
    """Check ``suite.yaml`` against the step files that are ``present``, name by step."""
    config = read_json(directory, SUITE, findings)
    if config is None:
        return None
    place = Place(findings, SUITE, None)
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
    elif env.get("WORKLOAD_BENCHMARK_LIVE_TOOL", "1") not in ("0", 0):
        place.report(
            "live tool",
            "env.WORKLOAD_BENCHMARK_LIVE_TOOL",
            shown(env.get("WORKLOAD_BENCHMARK_LIVE_TOOL")),
            '"0": the replay would call the real tool',
            warning=True,
        )
    return Suite(groups)


def check_formal_log(directory: Path, groups: int, findings: Findings) -> None:
    """Check that every line gives its times to PolyTrace, one line per benchmark group."""
    data = read_small(directory / FORMAL_LOG, _JSON_B)
    if isinstance(data, str):
        findings.add("file", FORMAL_LOG, None, None, data, "a regular file")
        return
    lines = data.decode("utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        times = [key for key in console_metrics(line) if key.startswith("timing_s/")]
        if not times or len(times) != line.count("timing_s/"):
            expected = "step:N - timing_s/STAGE:SECONDS in plain decimals"
            findings.add("parse", FORMAL_LOG, number, None, shown(line), expected)
    if len(lines) != groups:
        expected = f"{groups}, one per benchmark group: they are paired by position"
        findings.add("lines", FORMAL_LOG, None, None, f"{len(lines)} lines", expected)
