"""Real trainings for the conformance tests: which, how they are started, and what they left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from rlvr_probe_trl.tests.releases import folders
from rlvr_probe_trl.tests.truth import Truth, read_truth

from rlvr_probe.exporter import Written
from rlvr_probe.model.trace import Trace
from rlvr_probe.recording import read_run
from tests import trainings
from tests.planted import ASLEEP, Planted, disturbed
from tests.surroundings import surroundings
from tests.watched import wait_for_the_end_of_its_sidecar, watched

__all__ = [
    "FULL",
    "LAUNCHER",
    "SCENARIOS",
    "TRAIN",
    "Finished",
    "Runner",
    "Scenario",
    "environment",
    "named",
    "run_command",
    "run_script",
]

TRAIN = Path(__file__).with_name("train.py")
LAUNCHER = Path(sys.executable).with_name("rlvr-probe")


@dataclass(frozen=True)
class Scenario:
    """One training.

    Attributes:
        arguments: Of ``train.py``.
        how: ``attach`` (the script attaches itself), ``launcher`` or ``bare`` (no probe).
        ranks: More than one are started with torchrun.
        group_size: Completions per prompt.
        stages: Stages that must be there, besides those of every training.
        exit_status: What the training ends with.
        then: Arguments of a second process of the same run.
        environment: Variables for it, as ``NAME=value``; ``{folder}`` is its working directory.
        trl: Release that runs it; empty for the installed one.
        watched: There are GPUs, scripted ones, and a collector; its sidecar is waited for.
        script: What trains.
        planted: What sleeps in it.
    """

    arguments: str = ""
    how: str = "attach"
    ranks: int = 1
    group_size: int = 4
    stages: frozenset[str] = frozenset()
    exit_status: int = 0
    then: str | None = None
    environment: tuple[str, ...] = ()
    trl: str = ""
    watched: bool = False
    script: Path = TRAIN
    planted: Planted | None = None

    @property
    def bare(self) -> Scenario:
        """The same training without a probe."""
        return Scenario(self.arguments, "bare", self.ranks, self.group_size, trl=self.trl)


MANY = "--steps 4 --eval-every 2 --save-every 2 --subclass --async-reward --reward-model --beta 0.1"

SCENARIOS = {
    "many": Scenario(MANY, stages=frozenset({"ref_logprob", "eval", "checkpoint"}), watched=True),
    "n8_truncated": Scenario("--group-size 8 --batch 16 --max-tokens 8", "launcher", group_size=8),
    "two_ranks": Scenario(
        "--rank-delay 2 --eval-every 2", ranks=2, stages=frozenset({"eval"}), watched=True
    ),
    "straddling": Scenario("--group-size 8 --batch 4", "launcher", ranks=2, group_size=8),
    "reuse": Scenario(
        "--steps-per-generation 2 --iterations 2 --steps 8",
        stages=frozenset({"old_logprob"}),
    ),
    "two_batches": Scenario("--steps-per-generation 1 --accumulation 2", "launcher"),
    "rloo": Scenario("--algorithm rloo", stages=frozenset({"old_logprob", "ref_logprob"})),
    "resumed": Scenario(
        "--steps 6 --save-every 3 --kill-at 5", exit_status=-9, then="--steps 6 --resume"
    ),
    # Releases where something is done in another way; `adapter.py` says what.
    "0.17": Scenario(
        "--iterations 2 --beta 0.1 --max-tokens 8 --mask-truncated --max-prompt-tokens 6"
        " --eval-every 2 --reward-model",
        stages=frozenset({"old_logprob", "ref_logprob", "eval"}),
        trl="0.17.0",
    ),
    "0.18": Scenario("--steps-per-generation 2", "launcher", trl="0.18.2"),
    "0.19": Scenario("--subclass --beta 0.1", trl="0.19.1"),
    "0.20_masked": Scenario(
        "--max-tokens 8 --mask-truncated --max-prompt-tokens 6 --eval-every 2 --subclass",
        stages=frozenset({"eval"}),
        trl="0.20.0",
    ),
    "0.20_resumed": Scenario(
        "--steps 6 --save-every 3 --kill-at 5",
        exit_status=-9,
        then="--steps 6 --resume",
        trl="0.20.0",
    ),
    "0.20_two_ranks": Scenario("--rank-delay 1 --eval-every 2", ranks=2, trl="0.20.0"),
    "0.22_rloo": Scenario(  # says of itself that its version is unknown
        "--algorithm rloo --reward-model",
        "launcher",
        stages=frozenset({"old_logprob", "ref_logprob"}),
        trl="0.22.0",
    ),
    "0.24_straddling": Scenario(
        "--group-size 8 --batch 4", "launcher", ranks=2, group_size=8, trl="0.24.0"
    ),
    "0.26": Scenario("--reward-model --eval-every 2", trl="0.26.2"),
    "0.28": Scenario(MANY, stages=frozenset({"ref_logprob", "eval", "checkpoint"}), trl="0.28.0"),
    "1.0": Scenario("--reward-model --eval-every 2 --iterations 2", trl="1.0.0"),
    "1.8": Scenario("--async-reward --subclass", "launcher", trl="1.8.0"),
}
"""Trainings whose workload must hold exactly what happened."""

FULL = frozenset(name for name, scenario in SCENARIOS.items() if scenario.trl and name != "0.17")
"""Those that continuous integration has no time for: of releases but the oldest and the newest."""


def named(*names: str) -> list[Any]:
    """Parameters of a test: these scenarios."""
    return [pytest.param(name, marks=pytest.mark.full if name in FULL else ()) for name in names]


@dataclass(frozen=True)
class Finished:
    """What a training left behind."""

    scenario: Scenario
    folder: Path
    output: str
    recordings: list[Path] = field(default_factory=list)

    @cached_property
    def truth(self) -> Truth:
        """What the training wrote down itself."""
        return read_truth(self.folder / "books", self.scenario.group_size)

    @property
    def recording(self) -> Path:
        """The only one."""
        [recording] = self.recordings
        return recording

    @cached_property
    def trace(self) -> Trace:
        """What was recorded."""
        return read_run(self.recording)

    @cached_property
    def results(self) -> list[Any]:
        """Losses, weights and tokens of every rank."""
        paths = sorted((self.folder / "books").glob("result-*.json"))
        return [json.loads(path.read_text()) for path in paths]

    @cached_property
    def workload(self) -> tuple[Written, Path]:
        """The workload written from the recording, judged sound by its own exporter."""
        return trainings.write_workload(self.trace, self.folder / "workload")


class Runner(trainings.Runner[Scenario, Finished]):
    """Starts each training once, at most two at a time: more would slow each other down."""

    at_once = 2

    def run(self, scenario: Scenario, folder: Path) -> Finished:
        """Run it, and the second process where there is one."""
        folder.mkdir()
        watch = watched(folder) if scenario.watched else nullcontext(dict[str, str]())
        with watch as more, disturbed(scenario.planted, folder / "books", folder / "slept"):
            output = _train(scenario, folder, scenario.arguments, scenario.exit_status, more)
            if scenario.then is not None:
                output += _train(scenario, folder, scenario.then, 0, more)
            run = self.left(scenario, folder, output)
            if scenario.watched:
                wait_for_the_end_of_its_sidecar(*run.recordings)
        return run

    @staticmethod
    def left(scenario: Scenario, folder: Path, output: str = "") -> Finished:
        """What a training left in ``folder``, and printed."""
        recordings = sorted((folder / "recordings").iterdir()) if scenario.how != "bare" else []
        return Finished(scenario, folder, output, [path for path in recordings if path.is_dir()])


def _train(
    scenario: Scenario, folder: Path, arguments: str, exit_status: int, more: Mapping[str, str]
) -> str:
    python = [sys.executable]
    if scenario.ranks > 1:
        python += ["-m", "torch.distributed.run", "--standalone"]
        python += ["--nproc-per-node", str(scenario.ranks)]
    attach = "before" if scenario.how == "attach" else "no"
    command = [*python, str(scenario.script), "--out", str(folder / "books"), "--attach", attach]
    if scenario.how == "launcher":
        command = [str(LAUNCHER), "run", "--", *command]
    command += arguments.split()
    return run_command(command, folder, scenario, exit_status=exit_status, more=more)


def run_command(
    command: Sequence[str],
    folder: Path,
    scenario: Scenario,
    *,
    timeout: float = 900,
    exit_status: int = 0,
    more: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """What ``command`` printed, run in ``folder`` with the environment of ``scenario``."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**environment(folder, scenario), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == exit_status, done.stdout[-4000:]
    return done.stdout


def run_script(script: Path, folder: Path, arguments: str) -> str:
    """What a training script printed that keeps its books in ``folder/books``."""
    command = [sys.executable, str(script), "--out", str(folder / "books"), *arguments.split()]
    return run_command(command, folder, Scenario())


def environment(folder: Path, scenario: Scenario) -> dict[str, str]:
    """Variables of a training that records into ``folder/recordings``."""
    given = {
        "RLVR_PROBE_OUT": str(folder / "recordings"),
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }
    paths = list(folders(scenario.trl)) if scenario.trl else []
    if scenario.planted is not None:
        given |= scenario.planted.variables(folder / "slept")
        paths.append(ASLEEP)
    if paths:
        inherited = filter(None, [os.environ.get("PYTHONPATH")])
        given["PYTHONPATH"] = os.pathsep.join([*map(str, paths), *inherited])
    if scenario.then is not None:  # ranks of one process start find their run id by themselves
        given["RLVR_PROBE_RUN_ID"] = "conformance"
    for assignment in scenario.environment:
        name, _, value = assignment.format(folder=folder).partition("=")
        given[name] = value
    return surroundings("PYTEST_") | given
