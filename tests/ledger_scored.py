"""Scores the ledger: simulates runs, and has it judged by the books of the simulator.

python -m tests.ledger_scored --runs 100
python -m tests.ledger_scored --seeds 0-499

An error is the difference of a category as a share of the time of all GPUs of the run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rlvr_probe.analysis.ledger import CATEGORIES, Ledger, make_ledger
from rlvr_probe.recording.tables import open_tables
from tests.seeds import add_seeds, seeds_of
from tests.simulator import Truth, scenario, simulate

__all__ = ["errors_of", "judge", "judge_all", "report"]


def errors_of(ledger: Ledger, truth: Truth) -> dict[str, float]:
    """Error of each category, and at ``sum`` that of all together."""
    whole = truth.gpus * (truth.end_ns - truth.begin_ns)
    errors = {name: (ledger.ns[name] - truth.ledger_ns.get(name, 0)) / whole for name in CATEGORIES}
    return errors | {"sum": sum(map(abs, errors.values()))}


def judge(seed: int, folder: Path) -> dict[str, float]:
    """Errors of the ledger of one seed, whose recording goes to ``folder`` and is removed."""
    truth = simulate(scenario(seed), folder, again=False)
    with open_tables(folder, threads=1) as tables:
        ledger = make_ledger(tables)
    shutil.rmtree(folder)
    if ledger is None:
        raise ValueError(f"seed {seed}: found no ledger, expected one")
    if sum(ledger.ns.values()) != len(ledger.gpus) * (ledger.end_ns - ledger.begin_ns):
        raise ValueError(f"seed {seed}: found a ledger that does not close")
    return errors_of(ledger, truth)


def judge_all(seeds: Iterable[int], folder: Path) -> dict[int, dict[str, float]]:
    """The same of many."""
    return {seed: judge(seed, folder / f"run-{seed}") for seed in seeds}


def report(found: Mapping[int, Mapping[str, float]]) -> str:
    """Worst error and 99 % quantile of each category, and whose seed the worst is."""
    lines = [f"{'category':22s} {'99 %':>9s} {'worst':>9s}  seed"]
    for name in (*CATEGORIES, "sum"):
        sizes = sorted((abs(errors[name]), seed) for seed, errors in found.items())
        worst, seed = sizes[-1]
        if worst > 0:
            at = sizes[min(len(sizes) - 1, int(0.99 * len(sizes)))][0]
            lines.append(f"{name:22s} {at:9.4%} {worst:9.4%}  {seed}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge and print; 1 if an error is above a hundredth."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.ledger_scored",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_seeds(parser, runs=100)
    seeds = seeds_of(parser.parse_args(arguments))
    with tempfile.TemporaryDirectory() as name:
        found = judge_all(seeds, Path(name))
    print(f"{len(found)} seeds: {' '.join(map(str, found))}")
    print(report(found))
    return int(any(errors["sum"] > 0.01 for errors in found.values()))


if __name__ == "__main__":
    sys.exit(main())
