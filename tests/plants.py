"""Trainings in which something is slow, somewhere: run, and looked at again, for any framework.

What is slow in which, and what would have been saved, is told by ``plant.py`` of its tests.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rlvr_probe.analysis.characterization import Characterization
from tests.planted import Planted, Slept, characterized, mistakes
from tests.trainings import Runner

__all__ = ["Left", "disturbed_s", "lines_of", "main", "step_times", "straggled_s", "wrong"]


class Job(Protocol):
    """What is run."""

    @property
    def planted(self) -> Planted | None:
        """What is slow."""


class Left(Protocol):
    """What a training left."""

    @property
    def scenario(self) -> Job:
        """What was run."""

    @property
    def folder(self) -> Path:
        """Where it is."""

    @property
    def recording(self) -> Path:
        """The folder of what was recorded."""


JobT = TypeVar("JobT")
LeftT = TypeVar("LeftT", bound=Left)


def lines_of(folder: Path, pattern: str) -> list[dict[str, Any]]:
    """Those of all books with such a name, file by file."""
    texts = (path.read_text().splitlines() for path in sorted(folder.glob(pattern)))
    return [json.loads(line) for text in texts for line in text]


def step_times(books: Path) -> Mapping[int, float]:
    """From the begin of each step to that of the next, s."""
    _, *lines = lines_of(books, "steps-0.jsonl")
    ends = [*(line["begin"] for line in lines[1:-1]), lines[-1]["end"]]
    return {
        line["step"]: (end - line["begin"]) / 1e9
        for line, end in zip(lines[:-1], ends, strict=True)
    }


def disturbed_s(books: Path, steps: Iterable[int]) -> float:
    """What these steps took longer than the others, the first one left out, s."""
    times, steps = step_times(books), frozenset(steps)
    usual = statistics.median(
        seconds for step, seconds in times.items() if step > 1 and step not in steps
    )
    return sum(times[step] - usual for step in steps)


def straggled_s(requests: Iterable[Mapping[str, Any]], steps: Iterable[int]) -> float:
    """What these steps wait for the last of their requests alone, s: ``step`` and ``end``, ns."""
    ends = {step: list[int]() for step in steps}
    for line in requests:
        if line["step"] in ends:
            ends[line["step"]].append(line["end"])
    last = (sorted(found)[-2:] for found in ends.values())
    return sum(end - before for before, end in last) / 1e9


def wrong(run: Left, said: Characterization, slept: Slept, gpus: int) -> list[str]:
    """What is wrong with the causes that are named."""
    return mistakes(said.causes, run.scenario.planted, slept, gpus)


def _line(name: str, run: Left, slept: Slept, gpus: int, said: Characterization) -> str:
    """What is said of a training."""
    whole_s = sum(step_times(run.folder / "books").values())
    what = run.scenario.planted
    named = [f"{cause.kind} {cause.gpu_s:.2f} GPU-s" for cause in said.causes] or ["nothing"]
    steps = ",".join(map(str, sorted(slept.steps)))
    return (
        f"{name}: {'nothing' if what is None else f'{what.kind} {what.place}'}"
        f", {slept.wall_s:.2f} s of {whole_s:.2f} s ({slept.wall_s / whole_s:.1%})"
        f" on {gpus} GPUs in steps {steps or '-'}; named: {', '.join(named)}"
        f"; wrong: {'; '.join(wrong(run, said, slept, gpus)) or 'nothing'}"
    )


def main(
    description: str | None,
    scenarios: Mapping[str, JobT],
    runner: Callable[[Path], Runner[JobT, LeftT]],
    left: Callable[[JobT, Path], LeftT],
    judged: Callable[[LeftT, Characterization], tuple[Slept, int]],
) -> None:
    """Run or look again at those that are named on the command line.

    Args:
        description: For the help.
        scenarios: All there are.
        runner: Runs them, in a folder.
        left: What an earlier one left in its folder.
        judged: What would have been saved, and how many GPUs wait.
    """
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(scenarios))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    running = runner(chosen.out.resolve())
    for name in chosen.names or scenarios:
        folder = running.root / name
        run = (left if folder.exists() else running.run)(scenarios[name], folder)
        said = characterized(run.recording)
        sys.stdout.write(_line(name, run, *judged(run, said), said) + "\n")
        sys.stdout.flush()
