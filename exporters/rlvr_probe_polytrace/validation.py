"""Judges a directory of step files: what is there, what is in it, and whether it fits together."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from rlvr_probe.exceptions import ValidationError
from rlvr_probe.exporter import Problem
from rlvr_probe_polytrace.filter_check import FilterCheck
from rlvr_probe_polytrace.findings import Findings, shown
from rlvr_probe_polytrace.layout import (
    FILTER,
    MANIFEST,
    MULTITURN,
    PACKED,
    REWARDS,
    STEP_NAME,
    SUITE_NAME,
    step_file,
)
from rlvr_probe_polytrace.manifest_check import Manifest, check_manifest, read_manifest
from rlvr_probe_polytrace.multiturn_check import check_multiturn
from rlvr_probe_polytrace.packed_check import Limits, check_packed
from rlvr_probe_polytrace.reading import FileReader
from rlvr_probe_polytrace.reward_check import check_rewards
from rlvr_probe_polytrace.suite_check import check_suite
from rlvr_probe_polytrace.sums import StepSums

__all__ = ["validate_directory"]

_SHARD = re.compile(r"(\d+)_rank_\d+", re.ASCII)
_NUMBER = re.compile(r"0|[1-9]\d{0,8}", re.ASCII)


def validate_directory(
    directory: Path, steps: Sequence[int] | None = None, response_cap: int | None = None
) -> list[Problem]:
    """Every problem of ``directory``; see :meth:`PolyTraceExporter.validate`.

    Raises:
        ValidationError: It cannot be read, or holds no step file.
    """
    try:
        names = sorted(os.listdir(directory))
    except OSError as error:
        raise ValidationError(
            f"{directory}: found nothing readable ({os.strerror(error.errno or 0)}), expected a "
            "directory; give the folder that holds the step files"
        ) from None
    return _Validation(directory, names, steps).run(response_cap)


class _Validation:
    """One pass over one directory."""

    def __init__(self, directory: Path, names: list[str], steps: Sequence[int] | None) -> None:
        self.directory = directory
        self.names = names
        self.findings = Findings()
        self.wanted = None if steps is None else set(steps)
        self.files: dict[str, dict[int, str]] = {PACKED: {}, REWARDS: {}, MULTITURN: {}}
        self.shards: dict[int, list[str]] = {}
        self.digests: dict[str, tuple[str, int, int]] = {}
        self.packed: dict[int, StepSums] = {}
        self.multiturn: dict[int, StepSums] = {}
        self._sort()

    def _sort(self) -> None:
        """Sort the files by kind and step.

        Raises:
            ValidationError: None of them is a step file.
        """
        for name in self.names:
            match = STEP_NAME.fullmatch(name)
            if match is None:
                continue
            kind, step = match.groups()
            shard = _SHARD.fullmatch(step)
            if kind == MULTITURN and shard:
                self.shards.setdefault(int(shard[1][:9]), []).append(name)
            elif _NUMBER.fullmatch(step):
                self.files[kind][int(step)] = name
            else:
                expected = f"{kind}_step_N.jsonl with a decimal number N"
                self.findings.add("name", ascii(name)[1:-1], None, None, shown(step), expected)
        if not (self.files[PACKED] or self.files[MULTITURN] or self.shards or self.findings.errors):
            raise ValidationError(
                f"{self.directory}: found no step file among {len(self.names)} entries, expected "
                f"{step_file(PACKED, 0)} or {step_file(MULTITURN, 0)}; give the folder of one run"
            )

    def run(self, response_cap: int | None) -> list[Problem]:
        """Judge everything; a cap that is not given is that of the manifest."""
        manifest = read_manifest(self.directory, self.findings) if MANIFEST in self.names else None
        self._check_numbers(manifest)
        if response_cap is None and manifest is not None:
            response_cap = manifest.response_cap
        limits = Limits(response_cap)

        def packed(reader: FileReader, step: int) -> None:
            self.packed[step] = check_packed(reader, step, limits, self.findings)

        def rewards(reader: FileReader, step: int) -> None:
            check_rewards(reader, step, self.packed.get(step), self.findings)

        def multiturn(reader: FileReader, step: int) -> None:
            self.multiturn[step] = check_multiturn(reader, step, response_cap, self.findings)

        self._each(PACKED, packed)
        self._each(REWARDS, rewards)
        self._each(MULTITURN, multiturn)
        self._check_filter()
        self._check_companions()
        present = self.files[PACKED] or self.files[MULTITURN]
        suites = {
            name: check_suite(self.directory, name, present, self.findings)
            for name in self.names
            if SUITE_NAME.fullmatch(name)
        }
        if manifest is not None:
            check_manifest(
                self.directory,
                manifest,
                self.packed or self.multiturn,
                self.digests,
                suites,
                self.findings,
                partial=self.wanted is not None,
            )
        return self.findings.problems()

    def _judged(self, step: int) -> bool:
        return self.wanted is None or step in self.wanted

    def _each(self, kind: str, check: Callable[[FileReader, int], None]) -> None:
        for step, name in sorted(self.files[kind].items()):
            if self._judged(step):
                reader = FileReader(self.directory, name, self.findings)
                check(reader, step)
                self._remember(reader)

    def _remember(self, reader: FileReader) -> None:
        if reader.sha256 is not None:
            self.digests[reader.name] = (reader.sha256, reader.lines, reader.size_b)

    def _check_numbers(self, manifest: Manifest | None) -> None:
        """Find steps that should have a file and have none."""
        kind = PACKED if self.files[PACKED] or not self.files[MULTITURN] else MULTITURN
        have = set(self.files[kind])
        expected = set(self.wanted or ())
        if manifest is not None and self.wanted is None:
            expected |= manifest.steps
        for step in sorted(expected - have):
            self.findings.add(
                "missing", step_file(kind, step), None, None, "no such file", "one for this step"
            )
        if expected or not have:
            return
        if have == {max(have)} and max(have) > 0:
            # Nothing tells a lost step 0 from one that validation took; say which step is meant.
            self.findings.add(
                "missing",
                step_file(kind, 0),
                None,
                None,
                f"no such file, and step {max(have)} alone",
                "step 0, or further steps, or the step asked for by number",
            )
            return
        holes = [step for step in range(min(max(have), 10**6)) if step not in have]
        if holes:
            self.findings.add(
                "hole",
                step_file(kind, holes[0]),
                None,
                None,
                f"no file for {len(holes)} of {max(have) + 1} steps, the first is {holes[0]}",
                "none missing, unless validation was counted",
                warning=True,
            )

    def _check_filter(self) -> None:
        if FILTER not in self.names:
            return
        reader = FileReader(self.directory, FILTER, self.findings)
        check = FilterCheck(self.findings)
        check.run(reader, self.packed, steps=self.wanted)
        self._remember(reader)
        for step in sorted(set(self.packed) - check.steps):
            found, expected = f"no line for step {step}", "one: the batch is replayed unfiltered"
            self.findings.add(
                "no line", FILTER, None, "workload_step", found, expected, warning=True
            )

    def _check_companions(self) -> None:
        """Reward and multi-turn files go with the files they complete."""
        rewards, packed = self.files[REWARDS], self.files[PACKED]
        for step, name in sorted(rewards.items()):
            if step not in packed and self._judged(step):
                expected = f"{step_file(PACKED, step)} beside it"
                self.findings.add("packed", name, None, None, "no packed file", expected)
        for step in sorted(set(self.packed) - set(rewards)) if rewards else ():
            found, expected = "no such file", "one as for other steps: 0 s would be replayed"
            self.findings.add(
                "missing", step_file(REWARDS, step), None, None, found, expected, warning=True
            )
        for step, names in sorted(self.shards.items()):
            merged = step in self.files[MULTITURN]
            for name in names:
                self.findings.add(
                    "shard",
                    name,
                    None,
                    None,
                    "a raw shard of one rank",
                    f"the merged {step_file(MULTITURN, step)} instead",
                    warning=merged,
                )
