"""One matrix for all tests of this folder, played in processes as users have them: not strict."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import today
from tests.faults.enumeration import core_modules, functions_of
from tests.faults.injection import KINDS, RAISED
from tests.faults.listed import AFTER, NEVER, PASSED_ON, VALUE

__all__ = ["FUNCTIONS", "Case", "Matrix", "Outcome", "each", "every", "half", "sample"]

FUNCTIONS = functions_of(core_modules())
DAYS = 24
"""A sample has one function in so many; the next day's is another, until all had their turn."""
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


class Matrix:
    """Plays cases, each at most once.

    Attributes:
        folder: Where their recordings are.
        played: What became of each.
    """

    def __init__(self, folder: Path) -> None:
        """Have none played yet."""
        self.folder = folder
        self.played: dict[Case, Outcome] = {}
        self._scenes = [_scene(folder) for _ in range(_PROCESSES)]

    def play(self, cases: Sequence[Case]) -> None:
        """Play those that were not."""
        waiting = [case for case in cases if case not in self.played]
        numbered = [(len(self.played) + i, case) for i, case in enumerate(waiting)]
        parts = [numbered[i::_PROCESSES] for i in range(_PROCESSES)]
        with ThreadPoolExecutor(_PROCESSES) as pool:
            for outcomes in pool.map(self._play, self._scenes, parts):
                self.played.update(outcomes)

    def _play(
        self, scene: subprocess.Popen[str], cases: Sequence[tuple[int, Case]]
    ) -> dict[Case, Outcome]:
        assert scene.stdin is not None
        assert scene.stdout is not None
        outcomes = {}
        for number, case in cases:
            function, kind = case
            scene.stdin.write(json.dumps([number, _spelled(function), kind]) + "\n")
            scene.stdin.flush()
            said = json.loads(scene.stdout.readline())
            recordings = self.folder / str(number) / "recordings"
            outcomes[case] = Outcome(recordings=recordings, **said)
        return outcomes

    def close(self) -> None:
        """End its processes, which must have nothing to complain of."""
        for scene in self._scenes:
            scene.communicate()
        assert [scene.returncode for scene in self._scenes] == [0] * _PROCESSES


def _scene(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", str(_SCENE), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _spelled(function: str) -> str:
    return f"{function} after {AFTER[function]}" if function in AFTER else function


def every() -> list[Case]:
    """Every function with every kind of fault."""
    return [(function, kind) for function in _functions() for kind in KINDS]


def each(shift: int = 0) -> list[Case]:
    """Every function with one kind of error, by turns; ``shift`` says with which it begins."""
    errors = list(RAISED)
    return [(name, errors[(i + shift) % len(errors)]) for i, name in enumerate(_functions())]


def half(seed: int) -> list[Case]:
    """Every second function with one kind of error; the others with the next seed."""
    return each(seed // 2)[seed % 2 :: 2]


def sample(seed: int) -> list[Case]:
    """Some functions with one kind of error each; those in a list of ours every second day."""
    delicate = PASSED_ON.keys() | VALUE.keys() | AFTER.keys()
    chosen = list[Case]()
    for i, case in enumerate(each(seed // DAYS)):
        days = 2 if case[0] in delicate else DAYS
        if i % days == seed % days:
            chosen.append(case)
    return chosen


def _functions() -> list[str]:
    return sorted(FUNCTIONS.keys() - NEVER.keys())


@pytest.fixture(autouse=True)
def drawn() -> int:
    """The seed of the sample, in what every test prints."""
    return today.seed()


@pytest.fixture(scope="session")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
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
    try:
        made.play([("-", "bare"), ("-", "-")])
        yield made
    finally:
        made.close()
