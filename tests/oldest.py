"""The unit tests with the oldest dependencies that are allowed, on the oldest Python there is.

    make oldest

makes a virtual environment of ``requirements/oldest.txt`` below ``.venv`` and keeps it until that
file changes. Without a Python 3.10 on ``PATH`` or from pyenv it takes the one it is run with, and
says so.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["OLDEST", "environment", "main"]

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "oldest.txt"
OLDEST = "3.10"
"""Oldest Python that pyproject allows."""
TOOLS = ("mutants", "resuming", "scheduling")
"""Unit tests of what runs tests: it needs pytest-xdist and coverage, which are not there."""


def oldest_python() -> str:
    """A Python of the oldest version allowed, or the one that runs this."""
    for python in _candidates():
        run = [python, "-c", "import sys, venv, ensurepip; print(*sys.version_info[:2], sep='.')"]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        if done.stdout.strip() == OLDEST:
            return python
    return sys.executable


def _candidates() -> Iterator[str]:
    on_path = shutil.which(f"python{OLDEST}")
    if on_path:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(map(str, pyenv.glob(f"versions/{OLDEST}.*/bin/python")), reverse=True)


def environment() -> Path:
    """The Python of a virtual environment with the oldest dependencies, made if need be."""
    base = oldest_python()
    key = hashlib.sha256(f"{base} {ROOT}".encode() + LOCK.read_bytes()).hexdigest()
    folder = Path(sys.prefix) / f"oldest-{key[:12]}"
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not ready.exists():
        for other in Path(sys.prefix).glob("oldest-*"):
            shutil.rmtree(other)
        subprocess.run([base, "-m", "venv", "--without-pip", folder], check=True)
        _install(python, "--require-hashes", "--no-deps", "-r", str(LOCK))
        _install(python, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
        ready.touch()
    return python


def _install(python: Path, *arguments: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", *arguments], check=True)


def main(arguments: Sequence[str]) -> int:
    """Run the tests, with more ``arguments`` for pytest, and return its exit status."""
    python = environment()
    version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True)
    note = "" if f" {OLDEST}." in version.stdout else f", as no Python {OLDEST} was found"
    print(f"unit tests on {version.stdout.strip()}{note}", flush=True)
    tests = ["-m", "pytest", "-p", "no:cacheprovider", "-m", "not conformance"]
    ignored = [f"--ignore=tests/unit/test_{name}.py" for name in TOOLS]
    run = [str(python), *tests, *ignored, "tests/unit", *arguments]
    return subprocess.run(run, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
