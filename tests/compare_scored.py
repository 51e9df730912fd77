"""Scores the comparison: simulates runs in pairs, of which it is known what differs.

python -m tests.compare_scored --runs 100
python -m tests.compare_scored --seeds 0-39

A run is compared with another draw of itself, with one in which a stage is a twentieth slower, and
with one of other lengths.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from rlvr_probe.analysis.comparison import Side, compare, read_side
from rlvr_probe.recording.tables import open_tables
from tests.seeds import add_seeds, seeds_of
from tests.simulator.courses import Course, Lasting, SlowLogprob, SlowRollout, SlowUpdate
from tests.simulator.scenarios import scenario
from tests.simulator.setting import Scenario
from tests.simulator.truth import simulate

__all__ = ["score"]

_SLOWER: Final = 0.05
_LENGTHS: Final = (0.6, 0.8, 1.25, 1.6)
_STAGES: Final[dict[str, Callable[[float, Course], Lasting]]] = {
    "update": SlowUpdate, "logprob": SlowLogprob, "rollout": SlowRollout,
}  # fmt: skip
_OF_ENGINES: Final = {"token", "evaluation"}
"""What takes longer as well where engines do."""

_APART: Final = 100_000
"""Seeds between the draws of one scenario."""


def score(seeds: Iterable[int], processes: int = 2) -> Counter[tuple[str, bool]]:
    """How many pairs of each kind were judged rightly, and how many not.

    Kinds are ``same``, ``lengths``, and ``slow`` with the name of the stage.
    """
    found = Counter[tuple[str, bool]]()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for judged in pool.map(_judged, seeds):
            found.update(judged)
    return found


def _judged(seed: int) -> list[tuple[str, bool]]:
    return list(_pairs(seed))


def _pairs(seed: int) -> Iterator[tuple[str, bool]]:
    draw, base = random.Random(seed), replace(scenario(seed), faults=())
    steps = Course("each", tuple(range(1, base.steps + 1)))
    before = _side(base)
    same = compare(before, _side(replace(base, seed=seed + _APART)))
    yield "same", not same.changed and not same.step.changed
    # Rollout beside the training has no step of its own.
    stages = [name for name in _STAGES if before.taken.ns.get(name)]
    stage = draw.choice(stages)
    fault = _STAGES[stage](_SLOWER, steps)
    slow = compare(before, _side(replace(base, seed=seed + 2 * _APART, faults=(fault,))))
    named = {change.name for change in slow.changed}
    of_it = {stage} | (_OF_ENGINES if stage == "rollout" else set())
    yield f"slow {stage}", bool(named - {"evaluation"}) and named <= of_it
    lengths = replace(base.lengths, median=base.lengths.median * draw.choice(_LENGTHS))
    longer = compare(before, _side(replace(base, seed=seed + 3 * _APART, lengths=lengths)))
    yield "lengths", longer.lengths_only


def _side(drawn: Scenario) -> Side:
    with tempfile.TemporaryDirectory(prefix="rlvr-probe-compared-") as name:
        folder = Path(name) / "run"
        simulate(drawn, folder)
        with open_tables(folder, threads=1) as tables:
            # Of a range of steps no causes are looked for.
            return read_side(tables, (1, drawn.steps))


def main() -> None:
    """Print the score."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.compare_scored",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_seeds(parser, runs=100)
    found = score(seeds_of(parser.parse_args()))
    for kind in sorted({kind for kind, _ in found}):
        right, wrong = found[kind, True], found[kind, False]
        sys.stdout.write(f"{kind}: {right} of {right + wrong}\n")


if __name__ == "__main__":
    main()
