"""The ledger of a recording is that of the books of whoever made it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rlvr_probe.analysis.ledger import CATEGORIES, Ledger, make_ledger
from rlvr_probe.analysis.tables import Tables, open_tables
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


def seconds_waited(tables: Tables) -> list[tuple[int, str, int, str, int | None, str | None]]:
    """Step, barrier, GPU ns, and kind, rank and name of the last."""
    return tables.sql.execute(
        "SELECT number, barrier, gpu_ns, last_kind, barrier_wait.rank, name FROM barrier_wait"
        " JOIN step USING (step_id)"
    ).fetchall()


@pytest.mark.parametrize("seed", [1, 3, 4, 16])
def test_who_was_waited_for_is_who_the_books_say(tmp_path: Path, seed: int) -> None:
    truth = simulate(scenario(seed), tmp_path / "run", again=False)
    with open_tables(tmp_path / "run") as tables:
        ledger = make_ledger(tables)
        told = seconds_waited(tables)
    assert ledger is not None
    sums = Counter[str]()
    for _, barrier, gpu_ns, kind, _, _ in told:
        assert kind
        sums[barrier] += gpu_ns
    assert sums == Counter(
        {
            barrier: ledger.ns[f"wait.{barrier}"]
            for barrier in ("rollout", "reward", "update", "refit")
            if ledger.ns[f"wait.{barrier}"]
        }
    )
    whole = agreed = 0
    for wait in truth.waits:
        here = [one for one in told if one[:2] == (wait["step"], wait["barrier"])]
        _, _, _, kind, rank, name = min(here, key=lambda one: abs(one[2] - wait["gpu_ns"]))
        same = kind == wait["kind"] and name == wait.get("name")
        whole += wait["gpu_ns"]
        agreed += wait["gpu_ns"] * (same and wait.get("rank") in (None, rank))
    # Ranks that are late by less than readings differ cannot be told apart.
    assert agreed >= 0.95 * whole
