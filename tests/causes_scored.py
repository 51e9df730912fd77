"""Scores the causes: simulates runs, looks for causes, and has them judged by the truth.

python -m tests.causes_scored --runs 500
python -m tests.causes_scored --seeds 0-499
python -m tests.causes_scored --wider --runs 100
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rlvr_probe.analysis.causes import Cause, find_causes
from rlvr_probe.recording.tables import open_tables
from tests.seeds import add_seeds, seeds_of
from tests.simulator.judging import Score, Verdict, judge
from tests.simulator.scenarios import scenario
from tests.simulator.setting import Scenario
from tests.simulator.truth import Truth, simulate
from tests.simulator.wider import wider_scenario

__all__ = ["Judged", "judged", "score"]


@dataclass(frozen=True)
class Judged:
    """One run: what is true of it, what was named, and what is said of that."""

    truth: Truth
    causes: list[Cause]
    verdict: Verdict


def judged(truth: Truth, causes: list[Cause]) -> Judged:
    """Judge what is named of a run, but for what belongs to the workload."""
    named = [(one.kind, _place(one), one.gpu_s) for one in causes if not one.natural]
    return Judged(truth, causes, judge(truth, named))


def _place(cause: Cause) -> dict[str, Any]:
    """Where it is; of trajectories of several steps, in all of these."""
    if cause.kind != "straggler" or "sample" in cause.where:
        return dict(cause.where)
    # Steps of a simulated run are numbered from 1.
    return {"steps": [step + 1 for step in cause.evidence["step"].ids]}


def score(
    seeds: Iterable[int], processes: int = 2, drawn: Callable[[int], Scenario] = scenario
) -> Score:
    """Judge the runs of these seeds, in several processes; ``drawn`` has their scenarios."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return Score(pool.map(partial(_verdict, drawn), seeds, chunksize=5))


def _verdict(drawn: Callable[[int], Scenario], seed: int) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="rlvr-probe-judged-") as name:
        folder = Path(name) / "run"
        truth = simulate(drawn(seed), folder)
        with open_tables(folder, threads=1) as tables:
            return judged(truth, find_causes(tables)).verdict


def main() -> int:
    """Print the score, seeds included."""
    asked = argparse.ArgumentParser(
        prog="python -m tests.causes_scored",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_seeds(asked, runs=500)
    asked.add_argument("--processes", type=int, default=2)
    asked.add_argument("--wider", action="store_true", help="faults may have a course")
    given = asked.parse_args()
    seeds = seeds_of(given)
    print("seeds:", *seeds)
    found = score(seeds, given.processes, wider_scenario if given.wider else scenario)
    print(found.told())
    return 0


if __name__ == "__main__":
    sys.exit(main())
