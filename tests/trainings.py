"""Real trainings, for tests that look at the same ones: each is run once, and so is its workload.

What a training is, and how it is run, is told by the tests of its framework.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import entry_points
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from rlvr_probe.exporter import WorkloadExporter, Written
from rlvr_probe.model.trace import Trace
from rlvr_probe.report import render
from rlvr_probe.workload import build_workload
from tests.summarized import summary_of

__all__ = ["Runner", "not_shown", "polytrace", "write_workload"]

_TITLES = ("Steps", "Stages", "Rewards", "Processes")
_STAGES = ("step", "rollout", "advantage", "update_actor", "eval")
_COLUMNS = ("step", "samples", "len p50", "trunc", "rollout s", "update s", "step s")
_FIGURES = ("steps recorded", "prompt tokens", "response tokens", "evaluation, counted apart")

ScenarioT = TypeVar("ScenarioT", bound=Hashable)
FinishedT = TypeVar("FinishedT")


class Runner(ABC, Generic[ScenarioT, FinishedT]):
    """Runs each scenario once, in a folder of its own, while tests look at finished ones.

    Attributes:
        at_once: How many run at a time.
        root: Where the folders are made.
    """

    at_once = 1

    def __init__(self, root: Path) -> None:
        self.root = root
        self._pool = ThreadPoolExecutor(self.at_once)
        self._runs: dict[ScenarioT, Future[FinishedT]] = {}

    @abstractmethod
    def run(self, scenario: ScenarioT, folder: Path) -> FinishedT:
        """Run it in ``folder``, which does not exist yet."""

    def start(self, scenarios: Iterable[ScenarioT]) -> None:
        """Begin without waiting."""
        for scenario in scenarios:
            if scenario not in self._runs:
                folder = self.root / f"run-{len(self._runs)}"
                self._runs[scenario] = self._pool.submit(self.run, scenario, folder)

    def start_named(
        self, session: pytest.Session, parameter: str, scenarios: Mapping[str, ScenarioT]
    ) -> None:
        """Begin those that the tests of a session name by ``parameter``, in their order."""
        wanted = (getattr(item, "callspec", None) for item in session.items)
        names = {spec.params.get(parameter): None for spec in wanted if spec is not None}
        self.start(scenarios[name] for name in names if name in scenarios)

    def finished(self, scenario: ScenarioT) -> FinishedT:
        """What it left, once it is over."""
        self.start([scenario])
        return self._runs[scenario].result()

    def close(self) -> None:
        """Begin no further one and wait for those that run."""
        self._pool.shutdown(cancel_futures=True)


def polytrace() -> WorkloadExporter:
    """The exporter, by entry point, as the command line does it: a plugin imports no other one."""
    [found] = entry_points(group="rlvr_probe.exporters", name="polytrace")
    exporter: WorkloadExporter = found.load()()
    return exporter


def write_workload(trace: Trace, directory: Path) -> tuple[Written, Path]:
    """The workload of a recording, written to a new directory and judged sound by its exporter."""
    exporter = polytrace()
    directory.mkdir()
    written = exporter.write(build_workload(trace), directory, keep_names=False)
    assert list(exporter.validate(directory)) == []
    return written, directory


def not_shown(recording: Path) -> list[str]:
    """What ``rlvr-probe show`` says of a training with evaluation, and does not say of this one.

    The same whatever the framework: nothing in the report knows it.
    """
    summary = summary_of(recording)
    text = io.StringIO()
    render(summary, text, color=False)
    lines = text.getvalue().splitlines()
    titles = {line.partition(" (")[0] for line in lines}
    begins = {line.split()[0] for line in lines if line.startswith("  ")}
    [columns] = [line for line in lines if line.split()[:2] == ["step", "samples"]]
    heading = " ".join(lines[: lines.index("")])
    return [
        *(title for title in _TITLES if title not in titles),
        *(stage for stage in _STAGES if stage not in begins),
        *(column for column in _COLUMNS if column not in columns),
        *(figure for figure in _FIGURES if figure not in heading),
    ]
