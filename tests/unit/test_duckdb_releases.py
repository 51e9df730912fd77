"""Releases of DuckDB that users have beside the newest answer the same questions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import wheels

pytestmark = [pytest.mark.conformance, pytest.mark.full, pytest.mark.timeout(1800)]

PINS = wheels.pinned("duckdb-releases.txt", "duckdb")
ASKED = ("test_agreeing.py", "test_causes.py", "test_chapters.py", "test_ledger.py")
"""Between them they ask every question of the analysis."""
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("version", PINS)
def test_a_release_between_the_oldest_and_the_newest_answers(version: str) -> None:
    folder = wheels.unpacked(f"duckdb-{version}", PINS[version])
    environ = {**os.environ, "PYTHONPATH": str(folder)}
    told = [sys.executable, "-c", "import duckdb; print(duckdb.__version__)"]
    used = subprocess.run(told, env=environ, capture_output=True, text=True, check=True)
    assert used.stdout.strip() == version
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not conformance"]
    files = [f"tests/unit/{name}" for name in ASKED]
    command = [sys.executable, *tests, *files]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-10_000:]
