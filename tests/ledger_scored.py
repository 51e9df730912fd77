"""Judges a ledger by the books of the simulator, over many seeds.

    python -m tests.judging --seeds 0-499
    python -m tests.judging --fresh 100

An error is the difference of a category as a share of the time of all GPUs of the run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import SystemRandom

from rlvr_probe.analysis.ledger import CATEGORIES, Ledger, make_ledger
from rlvr_probe.analysis.tables import open_tables
from tests.simulator import Truth, scenario, simulate

__all__ = ["errors_of", "fresh", "judge", "judge_all", "report"]


def errors_of(ledger: Ledger, truth: Truth) -> dict[str, float]:
    """Error of each category, and at ``sum`` that of all together."""
    whole = truth.gpus * (truth.end_ns - truth.begin_ns)
    errors = {name: (ledger.ns[name] - truth.ledger_ns.get(name, 0)) / whole for name in CATEGORIES}
    return errors | {"sum": sum(map(abs, errors.values()))}


def judge(seed: int, folder: Path) -> dict[str, float]:
    """Errors of the ledger of one seed, whose recording goes to ``folder`` and is removed."""
    truth = simulate(scenario(seed), folder, again=False)
    with open_tables(folder) as tables:
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


def fresh(count: int) -> list[int]:
    """Seeds that nobody has seen."""
    return [SystemRandom().randrange(1_000, 1 << 31) for _ in range(count)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge and print; 1 if an error is above a hundredth."""
    parser = argparse.ArgumentParser(description="judge the ledger by the simulator's books")
    parser.add_argument("--seeds", default="", help="first-last")
    parser.add_argument("--fresh", type=int, default=0, help="how many seeds to draw")
    given = parser.parse_args(arguments)
    first, _, last = given.seeds.partition("-")
    seeds = [*range(int(first), int(last or first) + 1)] if first else []
    seeds += fresh(given.fresh)
    with tempfile.TemporaryDirectory() as name:
        found = judge_all(seeds, Path(name))
    print(f"{len(found)} seeds: {' '.join(map(str, found))}")
    print(report(found))
    return int(any(errors["sum"] > 0.01 for errors in found.values()))


if __name__ == "__main__":
    sys.exit(main())
