"""What is not run today is run tomorrow, and by continuous integration on both days."""

from __future__ import annotations

from pathlib import Path

from tests.alternating import ALTERNATING, is_of

ROOT = Path(__file__).parents[2]
TWO = "tests/e2e/test_spool.py::test_a", "tests/e2e/test_spool.py::test_b"


def test_each_test_has_every_second_day_with_all_its_parameters() -> None:
    for test in (*TWO, f"{TWO[0]}[one]"):
        assert [is_of(day, test) for day in (4, 6)] == [is_of(4, test)] * 2
        assert is_of(4, test) != is_of(5, test)
    assert is_of(4, TWO[0]) == is_of(4, f"{TWO[0]}[one::two]")


def test_of_others_all_are_run_every_day() -> None:
    assert all(is_of(day, f"tests/unit/test_guard.py::test_{day}") for day in range(9))


def test_what_is_named_exists() -> None:
    assert [path for path in ALTERNATING if not (ROOT / path).exists()] == []
