"""Judges a directory of step files: what is there, what is in it, and whether it fits together."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rlvr_probe.exporter import Problem
from rlvr_probe_polytrace.files import (
    FILTER,
    MULTITURN,
    PACKED,
    REWARDS,
    STEP_NAME,
    FileReader,
    Folder,
    step_file,
)
from rlvr_probe_polytrace.findings import shown
from rlvr_probe_polytrace.records import Manifest, StepTotals
from rlvr_probe_polytrace.validate_lengths import Limits, check_filter, check_packed, check_rewards
from rlvr_probe_polytrace.validate_manifest import ManifestCheck, check_suite, read_manifest
from rlvr_probe_polytrace.validate_turns import check_multiturn

__all__ = ["validate_directory"]

_T = TypeVar("_T")

_SHARD = re.compile(r"(\d+)_rank_\d+", re.ASCII)
_SUITE_NAME = re.compile(r"suite(_group_\d{1,9})?\.yaml", re.ASCII)


def validate_directory(
    directory: Path, steps: Sequence[int] | None = None, response_cap: int | None = None
) -> list[Problem]:
    """Every problem of ``directory``; see :meth:`PolyTraceExporter.validate`.

    Raises:
        ValidationError: It cannot be read, or holds no step file.
    """
    return _Validation(Folder(directory), steps).run(response_cap)


class _Validation:
    """One pass over one directory."""

    def __init__(self, folder: Folder, steps: Sequence[int] | None) -> None:
        self.folder = folder
        self.files = folder.steps
        self.wanted = None if steps is None else set(steps)
        self.shards: dict[int, list[str]] = {}
        self.digests: dict[str, tuple[str, int, int]] = {}
        self._sort()

    def _sort(self) -> None:
        """Find raw shards and odd names.

        Raises:
            ValidationError: There is no step file.
        """
        known = {name for files in self.files.values() for name in files.values()}
        for name in self.folder.names:
            match = STEP_NAME.fullmatch(name)
            if match is None or name in known:
                continue
            kind, step = match.groups()
            shard = _SHARD.fullmatch(step)
            if kind == MULTITURN and shard:
                self.shards.setdefault(int(shard[1][:9]), []).append(name)
            else:
                expected = f"{kind}_step_N.jsonl with a decimal number N"
                self.folder.at(ascii(name)[1:-1]).report("name", None, shown(step), expected)
        steps = self.files[PACKED] or self.files[MULTITURN] or self.shards
        if not steps and not self.folder.findings.errors:
            raise self.folder.no_step_file()

    def run(self, response_cap: int | None) -> list[Problem]:
        """Judge everything; a cap that was not asked for is that of the manifest."""
        manifest = read_manifest(self.folder)
        self._check_numbers(manifest)
        if response_cap is None and manifest is not None:
            response_cap = manifest.caps.response_tokens
        limits = Limits(response_cap)
        packed = self._each(PACKED, lambda reader, step: check_packed(reader, step, limits))
        self._each(REWARDS, lambda reader, step: check_rewards(reader, step, packed.get(step)))
        multiturn = self._each(
            MULTITURN, lambda reader, step: check_multiturn(reader, step, response_cap)
        )
        if FILTER in self.folder.names:
            self._check_filter(packed)
        self._check_companions(packed)
        present = self.files[PACKED] or self.files[MULTITURN]
        suites = {
            name: check_suite(self.folder, name, present)
            for name in self.folder.names
            if _SUITE_NAME.fullmatch(name)
        }
        if manifest is not None:
            totals = packed or multiturn
            check = ManifestCheck(self.folder, manifest, totals, self.digests, suites)
            check.run(partial=self.wanted is not None)
        return self.folder.findings.problems()

    def _judged(self, step: int) -> bool:
        return self.wanted is None or step in self.wanted

    def _each(self, kind: str, check: Callable[[FileReader, int], _T]) -> dict[int, _T]:
        """What ``check`` makes of every file of ``kind`` that is to be judged, by step."""
        results = {}
        for step, name in sorted(self.files[kind].items()):
            if self._judged(step):
                reader = FileReader(self.folder, name)
                results[step] = check(reader, step)
                self._remember(reader)
        return results

    def _remember(self, reader: FileReader) -> None:
        if reader.sha256 is not None:
            self.digests[reader.name] = (reader.sha256, reader.lines, reader.size_b)

    def _check_numbers(self, manifest: Manifest | None) -> None:
        """Find steps that should have a file and have none."""
        kind = PACKED if self.files[PACKED] or not self.files[MULTITURN] else MULTITURN
        present = set(self.files[kind])
        expected = set(self.wanted or ())
        if manifest is not None and self.wanted is None:
            expected |= set(range(len(manifest.steps)))
        for step in sorted(expected - present):
            file = self.folder.at(step_file(kind, step))
            file.report("missing", None, "no such file", "one for this step")
        if expected or not present:
            return
        last = max(present)
        if present == {last} and last > 0:
            # A lost step 0 looks like one that validation took: the user says which step is meant.
            self.folder.at(step_file(kind, 0)).report(
                "missing",
                None,
                f"no such file, and step {last} alone",
                "step 0, or further steps, or the step asked for by number",
            )
            return
        holes = [step for step in range(min(last, 10**6)) if step not in present]
        if holes:
            found = f"no file for {len(holes)} of {last + 1} steps, the first is {holes[0]}"
            self.folder.at(step_file(kind, holes[0])).report(
                "hole", None, found, "none missing, unless validation was counted", warning=True
            )

    def _check_filter(self, packed: dict[int, StepTotals]) -> None:
        reader = FileReader(self.folder, FILTER)
        steps = check_filter(reader, packed, self.wanted)
        self._remember(reader)
        for step in sorted(packed.keys() - steps):
            found, expected = f"no line for step {step}", "one: the batch is replayed unfiltered"
            reader.location.report("no line", "workload_step", found, expected, warning=True)

    def _check_companions(self, packed: dict[int, StepTotals]) -> None:
        """Reward and multi-turn files go with the files they complete."""
        rewards = self.files[REWARDS]
        for step, name in sorted(rewards.items()):
            if step not in self.files[PACKED] and self._judged(step):
                expected = f"{step_file(PACKED, step)} beside it"
                self.folder.at(name).report("packed", None, "no packed file", expected)
        for step in sorted(packed.keys() - rewards.keys()) if rewards else ():
            expected = "one as for other steps: 0 s would be replayed"
            file = self.folder.at(step_file(REWARDS, step))
            file.report("missing", None, "no such file", expected, warning=True)
        for step, names in sorted(self.shards.items()):
            merged = step in self.files[MULTITURN]
            expected = f"the merged {step_file(MULTITURN, step)} instead"
            for name in names:
                found = "a raw shard of one rank"
                self.folder.at(name).report("shard", None, found, expected, warning=merged)
