"""The ledger of runs that nobody has seen before is within a hundredth of the truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ledger_scored import judge_all, report
from tests.seeds import draw

_OF_SOME = 8
"""Other ones each time."""
_OF_MANY = 200

_UNFINISHED = 1543664978
"""In the end a trajectory is under way, whose turn before had the engine to itself for 12 s."""


@pytest.mark.conformance
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    "count",
    [
        _OF_SOME,
        pytest.param(_OF_MANY, marks=pytest.mark.full),
    ],
)
def test_the_ledger_of_fresh_seeds_is_within_a_hundredth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    seeds = draw(count)
    with capsys.disabled():
        print(f"\nledger: seeds {' '.join(map(str, seeds))}")
        found = judge_all(seeds, tmp_path)
        print(report(found))
    for seed, errors in found.items():
        assert errors["sum"] < 0.01, f"seed {seed}: {errors}"


@pytest.mark.conformance
def test_the_ledger_counts_the_turns_of_a_trajectory_that_never_ended(tmp_path: Path) -> None:
    found = judge_all([_UNFINISHED], tmp_path)
    assert found[_UNFINISHED]["sum"] < 0.01, found
