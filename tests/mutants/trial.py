"""Tries a mutant on the tests of a checkout."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.mutants.draw import Mutant
from tests.mutants.lines import Lines

__all__ = ["first_failure", "mutated", "ordered"]

LIMIT_S: Final = 1_200
"""A mutant may make tests wait for ever; each has 120 s."""
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


def ordered(tests: Iterable[str], lines: Lines) -> list[str]:
    """Tests, those first that run the fewest lines."""
    asked = frozenset(tests)
    sizes = dict.fromkeys(asked, 0)
    for by_line in lines.values():
        for running in by_line.values():
            for test in running & asked:
                sizes[test] += 1
    return sorted(asked, key=lambda test: (sizes[test], test))


@contextmanager
def mutated(checkout: Path, mutant: Mutant) -> Iterator[None]:
    """The checkout has the mistake, and then no more."""
    path = checkout / mutant.path
    source = path.read_bytes()
    try:
        _write(path, mutant.text(source))
        yield
    finally:
        _write(path, source)


def _write(path: Path, source: bytes) -> None:
    path.write_bytes(source)
    # Bytecode is taken for that of a file of the same second and size.
    for kept in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        kept.unlink()


def first_failure(checkout: Path, tests: Sequence[str]) -> str | None:
    """The first of these tests that fails, "time" if they do not end, or none."""
    if not tests:
        return None
    environ = {name: value for name, value in os.environ.items() if "PYTHONDONT" not in name}
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.write("\n".join(tests) + "\n")
        listed.flush()
        python = str(checkout / ".venv/bin/python")
        command = [python, "-m", "pytest", "-q", "-x", "--tb=no", "-rfE"]
        options = ["-o", "timeout=120", "-p", "no:cacheprovider", f"@{listed.name}"]
        try:
            done = subprocess.run(
                [*command, *options],
                cwd=checkout,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "time"
    if done.returncode == 0:
        return None
    failed = _FAILED.findall(done.stdout)
    return failed[0] if failed else f"pytest ended with {done.returncode}"
