"""Checks the manifest, the suite configs and the formal logs against the files they describe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import UNSET

from rlvr_probe_polytrace.files import (
    FORMAT,
    MANIFEST,
    MULTITURN,
    MULTITURN_FLAVOR,
    PACKED,
    Folder,
    step_file,
)
from rlvr_probe_polytrace.findings import Location, shown
from rlvr_probe_polytrace.records import (
    SCHEMA_VERSION,
    FileEntry,
    LaunchEntry,
    Manifest,
    StepEntry,
    StepTotals,
    SuiteConfig,
    Versioned,
)

__all__ = ["ManifestCheck", "check_suite", "console_metrics", "read_manifest"]

_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,200}", re.ASCII)
_FORMAL_NAME = re.compile(r"formal(_group_\d{1,9})?\.log", re.ASCII)
_CONSOLE_PAIR = re.compile(r"([A-Za-z0-9_./-]+):([-+0-9.eE]+)")


def read_manifest(folder: Folder) -> Manifest | None:
    """The manifest; None if there is none, or, with a problem, if its outline is unsound."""
    if MANIFEST not in folder.names:
        return None
    value = folder.read_json(MANIFEST)
    location = folder.at(MANIFEST)
    head = None if value is None else location.convert(value, Versioned)
    if head is None or not location.equal("format", head.format, FORMAT):
        return None
    why = ", or a newer rlvr-probe"
    if not location.equal("schema_version", head.schema_version, SCHEMA_VERSION, why):
        return None
    manifest = location.convert(value, Manifest)
    if manifest is None:
        return None
    names = list(manifest.steps)
    if names != [str(number) for number in range(len(names))]:
        location.report("steps", "steps", names, "every workload step from 0, in order")
        return None
    return manifest


@dataclass(frozen=True, slots=True)
class ManifestCheck:
    """A manifest and what was read of the files that it lists.

    Attributes:
        folder: The workload.
        manifest: Its manifest.
        totals: Of the judged packed or multi-turn files by step.
        digests: (SHA-256, lines, bytes) of the files that were read to their end.
        suites: Its suite configs by name, None for an unsound one.
    """

    folder: Folder
    manifest: Manifest
    totals: Mapping[int, StepTotals]
    digests: Mapping[str, tuple[str, int, int]]
    suites: Mapping[str, SuiteConfig | None]

    def run(self, *, partial: bool) -> None:
        """Check everything; sums cannot be compared if only a part of the steps was judged."""
        location = self.folder.at(MANIFEST)
        self._check_files(location)
        for step, totals in self.totals.items():
            self._check_step(location, step, totals)
        if not partial and all(totals.sound for totals in self.totals.values()):
            self._check_totals(location.within("totals"))
        if self.manifest.replay is not None:
            launches = self.manifest.replay.launches
            within = location.within("replay")
            for position, launch in enumerate(launches):
                self._check_launch(within.within(f"launches[{position}]"), launch)
            for name in sorted(self.suites.keys() - {launch.config for launch in launches}):
                within.report("suite", "launches", f"none of {name}", "one per suite config")

    def _check_files(self, location: Location) -> None:
        files = self.manifest.files
        for name, value in files.items():
            if not _FILE_NAME.fullmatch(name):
                location.report("file name", "files", shown(name), "plain file names")
                continue
            entry = location.within(f"files.{name}").convert(value, FileEntry)
            if entry is None:
                continue
            digest = self.digests.get(name) or self.folder.digest(name)
            file = self.folder.at(name)
            if isinstance(digest, str):
                file.report("file", None, digest, f"a regular file, as in {MANIFEST}")
                continue
            for key, current in zip(("bytes", "lines", "sha256"), reversed(digest), strict=True):
                if current != getattr(entry, key):
                    recorded = shown(getattr(entry, key))
                    expected = f"{recorded}, as in {MANIFEST}: the file was changed"
                    file.report("changed", key, shown(current), expected)
                    break
        for name in self.digests.keys() - files.keys():
            expected = f"a file that {MANIFEST} lists"
            self.folder.at(name).report("listed", None, "a file", expected)

    def _check_step(self, location: Location, step: int, totals: StepTotals) -> None:
        steps = self.manifest.steps
        if str(step) not in steps:
            kind = MULTITURN if self.manifest.flavor == MULTITURN_FLAVOR else PACKED
            expected = f"steps 0 to {len(steps) - 1}, as in {MANIFEST}"
            file = self.folder.at(step_file(kind, step))
            file.report("listed", None, f"step {step}", expected)
            return
        at = location.within(f"steps.{step}")
        entry = at.convert(steps[str(step)], StepEntry)
        if entry is not None and totals.sound:
            at.equal("prompts", entry.prompts, totals.prompts, ", the prompts of the step file")
        if totals.n is not None and totals.sound:
            why = ", samples per prompt in the step files"
            location.equal("n", self.manifest.n, totals.n, why)

    def _check_totals(self, location: Location) -> None:
        shares = [share for step in self.totals.values() for share in step.shares.values()]
        prompt_tokens = self.manifest.n * sum(share.prompt_tokens for share in shares)
        for key, expected in (
            ("batches", len(self.totals)),
            ("groups", sum(share.prompts for share in shares)),
            ("trajectories", sum(share.samples for share in shares)),
            ("response_tokens", sum(share.response_tokens for share in shares)),
            ("prompt_tokens", prompt_tokens),
        ):
            value = getattr(self.manifest.totals, key)
            location.equal(key, value, expected, ", the sum over the step files")

    def _check_launch(self, location: Location, launch: LaunchEntry) -> None:
        """The suite config is the one that the manifest says, with its groups and batch sizes."""
        files, config, log = self.manifest.files, launch.config, launch.formal_log
        if config not in files:
            location.report("suite", "config", shown(config), "a suite config among the files")
        suite = self.suites.get(config)
        if suite is not None:
            groups = suite.groups
            location.equal("groups", launch.groups, len(groups), f", the groups of {config}")
            for step in sorted({step for group in groups for step in group} & set(self.totals)):
                totals, prompts = self.totals[step], launch.prompts_per_batch
                if totals.sound and totals.prompts != prompts:
                    why = f"{totals.prompts} as in step {step}: PolyTrace would draw at random"
                    location.report("batch size", "prompts_per_batch", prompts, why)
        if log is None:
            return
        if log not in files or not _FORMAL_NAME.fullmatch(log):
            location.report("formal log", "formal_log", shown(log), "a log among the files")
        else:
            _check_formal_log(self.folder, log, launch.groups)


def check_suite(folder: Folder, name: str, present: Mapping[int, str]) -> SuiteConfig | None:
    """Check a suite config against the step files that are ``present``, name by step."""
    value = folder.read_json(name)
    location = folder.at(name)
    config = None if value is None else location.convert(value, SuiteConfig)
    if config is None:
        return None
    for group in config.groups:
        for step in group:
            if step not in present:
                location.report("groups", "step_groups", f"step {step}", "steps that have a file")
        if config.repo == "rllm" and len(group) > 1:
            location.report("groups", "step_groups", group, "one step per group for rllm")
    env = {} if config.env is UNSET else config.env
    if config.workload is not UNSET and config.workload.filter_indices_file is not UNSET:
        _check_filter_steps(location, config.step_groups, env.get("WORKLOAD_STEPS"))
    live_tool = env.get("WORKLOAD_BENCHMARK_LIVE_TOOL", "1")
    if live_tool not in ("0", 0):
        field, expected = "env.WORKLOAD_BENCHMARK_LIVE_TOOL", '"0": the replay would call the tool'
        location.report("live tool", field, shown(live_tool), expected, warning=True)
    return config


def _check_filter_steps(location: Location, groups: str, steps: object) -> None:
    """With a filter, one group per launch: PolyTrace looks it up by WORKLOAD_STEPS alone."""
    if ";" in groups:
        expected = "one group per launch: all would be filtered by the first one's"
        location.report("filter steps", "step_groups", groups, expected)
    elif steps != groups:
        expected = f"{shown(groups)}, step_groups: the filter is looked up by it"
        location.report("filter steps", "env.WORKLOAD_STEPS", shown(steps), expected)


def _check_formal_log(folder: Folder, name: str, groups: int) -> None:
    """Check that every line gives its times to PolyTrace, one line per benchmark group."""
    data = folder.read(name)
    if data is None:
        return
    lines = data.decode("utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        times = [key for key in console_metrics(line) if key.startswith("timing_s/")]
        if not times or len(times) != line.count("timing_s/"):
            expected = "step:N - timing_s/STAGE:SECONDS in plain decimals"
            Location(folder.findings, name, number).report("parse", None, shown(line), expected)
    if len(lines) != groups:
        expected = f"{groups}, one per benchmark group: they are paired by position"
        folder.at(name).report("lines", None, f"{len(lines)} lines", expected)


def console_metrics(line: str) -> dict[str, float]:
    """Metrics in a console line of verl as PolyTrace's analysis sees it; empty if it sees none."""
    if "timing_s/" not in line or "step:" not in line:
        return {}
    metrics: dict[str, float] = {}
    for key, text in _CONSOLE_PAIR.findall(line):
        try:
            metrics[key] = float(text)
        except ValueError:
            continue
    return metrics
