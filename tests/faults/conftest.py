"""One matrix for all tests of this folder, played in processes as users have them: not strict."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.faults.enumeration import core_modules, functions_of
from tests.faults.injection import KINDS, RAISED
from tests.faults.listed import AFTER, NEVER

__all__ = ["CASES", "FUNCTIONS", "Case", "Matrix", "Outcome"]

FUNCTIONS = functions_of(core_modules())
Case = tuple[str, str]

_SCENE = Path(__file__).with_name("scene.py")
_PROCESSES = 2
_INTEGRATIONS = {"toyrl": "ToyAdapter", "toyrl_late": "LateAdapter"}


@dataclass(frozen=True)
class Outcome:
    """What became of one process; see :mod:`scene`."""

    number: int
    function: str
    kind: str
    status: int | None
    stderr: str
    fired: int
    reached: Sequence[str]
    recordings: Path
    seen: Any = None
    faults: Sequence[tuple[str, str, int]] = ()
    modules: Sequence[str] = ()


@dataclass
class Matrix:
    """Plays cases, each at most once."""

    folder: Path
    played: dict[Case, Outcome] = field(default_factory=dict)

    def play(self, cases: Sequence[Case]) -> None:
        """Play those that were not."""
        waiting = [case for case in cases if case not in self.played]
        numbered = [(len(self.played) + i, case) for i, case in enumerate(waiting)]
        with ThreadPoolExecutor(_PROCESSES) as pool:
            parts = [numbered[i::_PROCESSES] for i in range(_PROCESSES)]
            for outcomes in pool.map(self._play, parts):
                self.played.update(outcomes)

    def _play(self, cases: Sequence[tuple[int, Case]]) -> dict[Case, Outcome]:
        lines = [
            json.dumps([number, _spelled(function), kind]) for number, (function, kind) in cases
        ]
        done = subprocess.run(
            [sys.executable, "-P", str(_SCENE), str(self.folder)],
            input="".join(line + "\n" for line in lines),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        outcomes = {}
        for (number, case), line in zip(cases, done.stdout.splitlines(), strict=True):
            said = json.loads(line)
            recordings = self.folder / str(number) / "recordings"
            outcomes[case] = Outcome(recordings=recordings, **said)
        return outcomes


def _spelled(function: str) -> str:
    return f"{function} after {AFTER[function]}" if function in AFTER else function


def _cases(every: bool) -> list[Case]:
    """Every function with every kind of fault, or with one kind of error each."""
    functions = sorted(FUNCTIONS.keys() - NEVER.keys())
    if every:
        return [(function, kind) for function in functions for kind in KINDS]
    errors = list(RAISED)
    return [(function, errors[i % len(errors)]) for i, function in enumerate(functions)]


CASES = {"test": _cases(False), "conformance": _cases(True)}


@pytest.fixture(scope="session")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """With a run without a probe, ``("-", "bare")``, and one without a fault, ``("-", "-")``."""
    folder = tmp_path_factory.mktemp("faults")
    for name in ("toyrl", "rlvr_probe_toyrl"):
        info = folder / "site" / f"{name}-1.2.3.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.3\n")
    lines = [f"{name} = rlvr_probe_toyrl:{adapter}" for name, adapter in _INTEGRATIONS.items()]
    group = "\n".join(["[rlvr_probe.integrations]", *lines])
    entry_points = folder / "site" / "rlvr_probe_toyrl-1.2.3.dist-info" / "entry_points.txt"
    entry_points.write_text(group + "\n")
    made = Matrix(folder)
    made.play([("-", "bare"), ("-", "-")])
    return made
