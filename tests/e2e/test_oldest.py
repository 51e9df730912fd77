"""The oldest versions that the bounds of our own dependencies allow do what the newest do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests import oldest, today

pytestmark = pytest.mark.conformance

DRAWN = ("causes", "ledger", "chapters_simulated")
"""Tests of runs that are drawn: they ask what others ask, many times more."""


def test_the_oldest_python_is_that_of_the_package() -> None:
    text = (oldest.ROOT / "pyproject.toml").read_text("utf-8")
    assert f'requires-python = ">={oldest.OLDEST}"' in text


def test_the_oldest_versions_are_the_bounds_of_the_package() -> None:
    text = (oldest.ROOT / "pyproject.toml").read_text("utf-8")
    core = text.partition("\ndependencies = [")[2].partition("]")[0]
    bounds = dict(re.findall(r'"([\w-]+)>=([\d.]+)"', core))
    locked = dict(re.findall(r"^([\w-]+)==([\d.]+)", oldest.LOCK.read_text("utf-8"), re.M))
    assert len(bounds) == 3
    for name, bound in bounds.items():
        # The first release at or above it: 0.18 is 0.18.0.
        assert locked[name].startswith(bound), f"{name}: run make lock, or say the bound exactly"


def not_today() -> list[str]:
    """All but every third file, which is another one tomorrow; and what is drawn."""
    files = sorted((oldest.ROOT / "tests" / "unit").glob("test_*.py"))
    names = [path.stem.removeprefix("test_") for path in files]
    assert set(DRAWN) <= set(names)
    tried = names[today.number() % 3 :: 3]
    return sorted({*names} - {*tried} | {*DRAWN})


@pytest.mark.timeout(2000)
@pytest.mark.parametrize(
    "left",
    [
        pytest.param(not_today(), id="third"),
        pytest.param((), id="all", marks=pytest.mark.full),
    ],
)
def test_the_unit_tests_pass_with_the_oldest_versions(left: Sequence[str]) -> None:
    print("not today:", *left)
    ignored = [f"--ignore=tests/unit/test_{name}.py" for name in left]
    run = [sys.executable, "-m", "tests.oldest", "-q", "--no-header", "-x", *ignored]
    environ = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        run, cwd=oldest.ROOT, env=environ, capture_output=True, text=True, timeout=1900
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"^unit tests on Python 3\.\d+\.", done.stdout)
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 300
