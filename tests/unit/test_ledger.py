"""The ledger of a recording is that of the books of whoever made it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr_probe.analysis.ledger import CATEGORIES, Ledger, make_ledger
from rlvr_probe.analysis.tables import open_tables
from tests.simulator import Truth, scenario, simulate
from tests.simulator.books import CATEGORIES as TRUE_CATEGORIES


def judged(ledger: Ledger, truth: Truth) -> dict[str, float]:
    """Error of each category as a share of the time of all GPUs; the sum of all at ``sum``."""
    whole = truth.gpus * (truth.end_ns - truth.begin_ns)
    errors = {name: (ledger.ns[name] - truth.ledger_ns.get(name, 0)) / whole for name in CATEGORIES}
    return errors | {"sum": sum(map(abs, errors.values()))}


def test_every_true_category_has_its_name() -> None:
    assert set(TRUE_CATEGORIES) <= set(CATEGORIES)


@pytest.mark.parametrize("seed", [1, 3, 4, 12, 16])
def test_the_ledger_is_that_of_the_books(tmp_path: Path, seed: int) -> None:
    truth = simulate(scenario(seed), tmp_path / "run", again=False)
    with open_tables(tmp_path / "run") as tables:
        ledger = make_ledger(tables)
    assert ledger is not None
    assert len(ledger.gpus) == truth.gpus
    assert sum(ledger.ns.values()) == truth.gpus * (ledger.end_ns - ledger.begin_ns)
    errors = judged(ledger, truth)
    assert max(errors.values(), key=abs) < 0.01, errors
