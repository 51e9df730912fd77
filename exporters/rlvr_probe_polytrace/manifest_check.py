"""Checks of ``manifest.json``: the files are those it was written with, and it tells the truth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlvr_probe_polytrace.fields import (
    ARRAY,
    COUNT,
    LENGTH,
    TEXT,
    TOTAL,
    Kind,
    Place,
    integer,
    is_integer,
)
from rlvr_probe_polytrace.findings import Findings, shown
from rlvr_probe_polytrace.layout import (
    FLAVORS,
    FORMAL_NAME,
    FORMAT,
    MANIFEST,
    MULTITURN,
    MULTITURN_FLAVOR,
    PACKED,
    SCHEMA_VERSION,
    step_file,
)
from rlvr_probe_polytrace.reading import digest_of
from rlvr_probe_polytrace.suite_check import Suite, check_formal_log, read_json
from rlvr_probe_polytrace.sums import StepSums

__all__ = ["Manifest", "check_manifest", "read_manifest"]

_OBJECT = Kind(lambda value: isinstance(value, dict), "an object")
_CAP = Kind(lambda value: value is None or LENGTH.test(value), f"null or {LENGTH.words}")
_REPLAY = Kind(lambda value: value is None or isinstance(value, dict), "null or an object")
_SHA256 = Kind(
    lambda value: isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{64}", value)),
    "64 hexadecimal digits",
)
_KEYS = {
    "flavor": Kind(lambda value: value in FLAVORS, f"one of {', '.join(FLAVORS)}"),
    "n": LENGTH,
    "caps": _OBJECT,
    "totals": _OBJECT,
    "steps": _OBJECT,
    "iterations": ARRAY,
    "replay": _REPLAY,
    "files": _OBJECT,
}
_TOTALS: dict[str, Kind] = dict.fromkeys(
    (
        "batches",
        "trainer_steps",
        "groups",
        "trajectories",
        "prompt_tokens",
        "response_tokens",
    ),
    TOTAL,
)
_STEP = {"session": COUNT, "trainer_step": COUNT, "ordinal": COUNT, "prompts": LENGTH}
_FILE = {"sha256": _SHA256, "lines": TOTAL, "bytes": TOTAL}
_LAUNCH = {
    "config": TEXT,
    "groups": LENGTH,
    "prompts_per_batch": LENGTH,
    "formal_log": Kind(lambda value: value is None or isinstance(value, str), "null or a name"),
}
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,200}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest whose outline is sound.

    Attributes:
        value: As read.
        response_cap: Longest response allowed, tokens.
        steps: Workload steps it lists.
    """

    value: Mapping[str, object]
    response_cap: int | None
    steps: frozenset[int]

    def section(self, name: str) -> dict[str, object]:
        """An object in it; empty if it is null."""
        value = self.value[name]
        return value if isinstance(value, dict) else {}


def read_manifest(directory: Path, findings: Findings) -> Manifest | None:
    """The manifest, or None and a problem if its outline is unsound."""
    value = read_json(directory, MANIFEST, findings)
    if value is None:
        return None
    place = Place(findings, MANIFEST, None)
    if not place.check(value, {"format": TEXT, "schema_version": LENGTH}):
        return None
    if not place.equal(value, "format", FORMAT):
        return None
    if not place.equal(value, "schema_version", SCHEMA_VERSION, ", or a newer rlvr-probe"):
        return None
    if not place.check(value, _KEYS):
        return None
    manifest = Manifest(value, None, frozenset())
    if not place.within("caps").check(manifest.section("caps"), {"response_tokens": _CAP}):
        return None
    cap = manifest.section("caps")["response_tokens"]
    names = list(manifest.section("steps"))
    if names != [str(number) for number in range(len(names))]:
        place.report("steps", "steps", names, "every workload step from 0, in order")
        return None
    return Manifest(value, cap if is_integer(cap) else None, frozenset(range(len(names))))


def check_manifest(
    directory: Path,
    manifest: Manifest,
    packed: Mapping[int, StepSums],
    digests: Mapping[str, tuple[str, int, int]],
    suites: Mapping[str, Suite | None],
    findings: Findings,
    *,
    partial: bool,
) -> None:
    """Check a manifest against what was read.

    Args:
        directory: The workload.
        manifest: Its manifest.
        packed: Judged packed or multi-turn files by step.
        digests: (SHA-256, lines, bytes) of the files that were read to their end.
        suites: Its suite configs by name, None for an unsound one.
        findings: Takes what is wrong.
        partial: Not every step was judged, so sums cannot be compared.
    """
    place = Place(findings, MANIFEST, None)
    _check_files(directory, manifest, digests, findings)
    steps = manifest.section("steps")
    kind = MULTITURN if manifest.value["flavor"] == MULTITURN_FLAVOR else PACKED
    for step, found in packed.items():
        if step not in manifest.steps:
            expected = f"steps 0 to {len(manifest.steps) - 1}, as in {MANIFEST}"
            findings.add("listed", step_file(kind, step), None, None, f"step {step}", expected)
            continue
        entry, at = steps[str(step)], place.within(f"steps.{step}")
        if not isinstance(entry, dict):
            at.report("type of steps", None, shown(entry), "an object")
        elif at.check(entry, _STEP) and found.sound:
            at.equal(entry, "prompts", found.prompts, ", the prompts of the step file")
        if found.n is not None and found.sound:
            place.equal(manifest.value, "n", found.n, ", samples per prompt in the step files")
    if not partial and all(found.sound for found in packed.values()):
        _check_totals(place.within("totals"), manifest, packed)
    _check_replay(place.within("replay"), directory, manifest, packed, suites)


def _check_files(
    directory: Path,
    manifest: Manifest,
    digests: Mapping[str, tuple[str, int, int]],
    findings: Findings,
) -> None:
    place = Place(findings, MANIFEST, None)
    for name, entry in manifest.section("files").items():
        if not _FILE_NAME.fullmatch(name):
            place.report("file name", "files", shown(name), "plain file names")
            continue
        at = place.within(f"files.{name}")
        if not isinstance(entry, dict):
            at.report("type of files", None, shown(entry), "an object")
            continue
        if not at.check(entry, _FILE):
            continue
        found = digests.get(name) or digest_of(directory / name)
        if isinstance(found, str):
            findings.add("file", name, None, None, found, f"a regular file, as in {MANIFEST}")
            continue
        for key, value in zip(("bytes", "lines", "sha256"), reversed(found), strict=True):
            if entry[key] != value:
                expected = f"{shown(entry[key])}, as in {MANIFEST}: the file was changed"
                findings.add("changed", name, None, key, shown(value), expected)
                break
    for name in digests:
        if name not in manifest.section("files"):
            findings.add("listed", name, None, None, "a file", f"none: {MANIFEST} has it not")


def _check_totals(place: Place, manifest: Manifest, packed: Mapping[int, StepSums]) -> None:
    totals = manifest.section("totals")
    if not place.check(totals, _TOTALS):
        return
    shares = [share for step in packed.values() for share in step.shares.values()]
    n = manifest.value["n"]
    for key, value in (
        ("batches", len(packed)),
        ("groups", sum(share.prompts for share in shares)),
        ("trajectories", sum(share.samples for share in shares)),
        ("response_tokens", sum(share.response_tokens for share in shares)),
    ):
        place.equal(totals, key, value, ", the sum over the step files")
    if is_integer(n):
        tokens = n * sum(share.prompt_tokens for share in shares)
        place.equal(totals, "prompt_tokens", tokens, ", the sum over the trajectories")


def _check_replay(
    place: Place,
    directory: Path,
    manifest: Manifest,
    steps: Mapping[int, StepSums],
    suites: Mapping[str, Suite | None],
) -> None:
    """The suite configs are those that the manifest says, with its groups and batch sizes."""
    replay = manifest.section("replay")
    if not replay or not place.check(replay, {"launches": ARRAY}):
        return
    launches = replay["launches"]
    assert isinstance(launches, list)  # noqa: S101 - narrows a checked value
    for position, launch in enumerate(launches):
        at = place.within(f"launches[{position}]")
        if not isinstance(launch, dict):
            at.report("type of launches", None, shown(launch), "an object")
        elif at.check(launch, _LAUNCH):
            _check_launch(at, directory, manifest, steps, suites, launch)
    named = {str(launch.get("config")) for launch in launches if isinstance(launch, dict)}
    for name in sorted(suites.keys() - named):
        place.report("suite", "launches", f"none of {name}", "one per suite config")


def _check_launch(
    place: Place,
    directory: Path,
    manifest: Manifest,
    steps: Mapping[int, StepSums],
    suites: Mapping[str, Suite | None],
    launch: Mapping[str, object],
) -> None:
    files = manifest.section("files")
    config, formal_log = str(launch["config"]), launch["formal_log"]
    if config not in files:
        place.report("suite", "config", shown(config), "a suite config among the files")
    suite = suites.get(config)
    if suite is not None:
        place.equal(launch, "groups", len(suite.groups), f", the groups of {config}")
        prompts = launch["prompts_per_batch"]
        for step in sorted({step for group in suite.groups for step in group} & set(steps)):
            if steps[step].sound and steps[step].prompts != prompts:
                place.report(
                    "batch size",
                    "prompts_per_batch",
                    shown(prompts),
                    f"{steps[step].prompts} as in step {step}: PolyTrace would draw at random",
                )
    if isinstance(formal_log, str):
        if formal_log not in files or not FORMAL_NAME.fullmatch(formal_log):
            place.report("formal log", "formal_log", shown(formal_log), "a log among the files")
        else:
            check_formal_log(directory, formal_log, integer(launch, "groups"), place.findings)
