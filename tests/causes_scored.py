"""Scores the causes: simulates runs, looks for causes, and has them judged by the truth.

python -m tests.causes_scored --runs 500
python -m tests.causes_scored --seeds 0-499
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from rlvr_probe.analysis.causes import Cause, find_causes
from rlvr_probe.recording.tables import open_tables
from tests.seeds import add_seeds, seeds_of
from tests.simulator.judging import Score, Verdict, judge
from tests.simulator.scenarios import scenario
from tests.simulator.truth import Truth, simulate

__all__ = ["Judged", "judged", "score"]


@dataclass(frozen=True)
class Judged:
    """One run: what is true of it, what was named, and what is said of that."""

    truth: Truth
    causes: list[Cause]
    verdict: Verdict


def judged(truth: Truth, causes: list[Cause]) -> Judged:
    """Judge what is named of a run."""
    return Judged(truth, causes, judge(truth, [(one.kind, one.where, one.gpu_s) for one in causes]))


def score(seeds: Iterable[int], processes: int = 2) -> Score:
    """Judge the runs of these seeds, in several processes."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return Score(pool.map(_verdict, seeds, chunksize=5))


def _verdict(seed: int) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="rlvr-probe-judged-") as name:
        folder = Path(name) / "run"
        truth = simulate(scenario(seed), folder)
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
    given = asked.parse_args()
    seeds = seeds_of(given)
    print("seeds:", *seeds)
    found = score(seeds, given.processes)
    print(found.told())
    return 0


if __name__ == "__main__":
    sys.exit(main())
