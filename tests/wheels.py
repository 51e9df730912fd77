"""Releases of frameworks beside what is installed, each unpacked into a folder of its own.

A folder is made once, from a pinned list in ``requirements/``, and kept in the virtual environment
that runs the tests. What a build that was interrupted left is never taken for a folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = [
    "KEPT",
    "REQUIREMENTS",
    "alone",
    "installed",
    "made",
    "numbers",
    "pinned",
    "said",
    "unpacked",
]

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"
KEPT = Path(sys.prefix) / "releases"

_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
_EXACTLY = ("--quiet", "--no-deps", "--require-hashes", "--retries", "5")

_failed: dict[str, str] = {}
"""What went wrong, by folder: it is tried once per test run."""


def pinned(listed: str, name: str) -> dict[str, str]:
    """Lines for the package ``name`` of a list in ``requirements/``, by version, in its order."""
    lines = (REQUIREMENTS / listed).read_text().splitlines()
    pins = [line for line in lines if line.startswith(f"{name}==")]
    return {pin.split()[0].partition("==")[2]: pin for pin in pins}


def numbers(version: str) -> tuple[int, ...]:
    """A version, to be compared."""
    return tuple(int(number) for number in version.split("."))


def unpacked(name: str, pins: str, *, only: str = "", platform: Sequence[str] = ()) -> Path:
    """The folder ``name`` with the wheels of a list, unpacked without their dependencies.

    Args:
        name: Name of the folder.
        pins: The list.
        only: Files whose names end so are unpacked.
        platform: What pip is told of the wheels to take, if they need not run here.
    """

    def fill(folder: Path, listed: Path) -> None:
        wheels = folder / "wheels"
        asked = ("--only-binary", ":all:", "--dest", str(wheels), "--requirement", str(listed))
        _pip("download", (*platform, *asked), folder.name, timeout=900)
        # A wheel is a package as it is imported; `pip install` would take three times as long.
        for wheel in wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                members = [one for one in archive.namelist() if one.endswith(only)]
                archive.extractall(folder, members)
        shutil.rmtree(wheels)
        # A wheel may keep what is imported apart, for an installer to put in its place.
        for kept in [*folder.glob("*.data/purelib/*"), *folder.glob("*.data/platlib/*")]:
            kept.rename(folder / kept.name)

    return made(name, pins, fill)


def installed(name: str, pins: str) -> Path:
    """The folder ``name`` with a list installed into it, programs and source packages too."""

    def fill(folder: Path, listed: Path) -> None:
        # What is imported is compiled then, which is a tenth of what there is.
        into = ("--no-build-isolation", "--no-compile", "--target", str(folder))
        _pip("install", (*into, "--requirement", str(listed)), folder.name, timeout=1800)

    return made(name, pins, fill)


def made(name: str, description: str, fill: Callable[[Path, Path], None]) -> Path:
    """The folder ``name``, filled anew if its description changed.

    Args:
        name: Name of the folder.
        description: What it is made from.
        fill: Called with an empty folder and with a file that holds the description.
    """
    folder, listed = KEPT / name, KEPT / f"{name}.txt"
    with alone(name):
        if folder.is_dir() and listed.exists() and listed.read_text() == description:
            return folder
        listed.unlink(missing_ok=True)
        for stale in (folder, *KEPT.glob(f"unfinished-{name}@*")):
            shutil.rmtree(stale, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=KEPT, prefix=f"unfinished-{name}@") as scratch:
            empty, text = Path(scratch) / name, Path(scratch) / "list.txt"
            empty.mkdir()
            text.write_text(description)
            fill(empty, text)
            empty.rename(folder)
            text.rename(listed)
    return folder


@contextmanager
def alone(name: str) -> Iterator[None]:
    """One process and thread at a time for each name; the lock of one that dies is free."""
    KEPT.mkdir(exist_ok=True)
    with (KEPT / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _pip(action: str, arguments: Sequence[str], name: str, *, timeout: float) -> None:
    if name not in _failed:
        command = [*_PIP, action, *_EXACTLY, *arguments]
        try:
            subprocess.run(command, capture_output=True, text=True, check=True, timeout=timeout)
        except subprocess.SubprocessError as error:
            _failed[name] = said(error)
        else:
            return
    reason = f"{name} could not be downloaded: {_failed[name]}"
    # Elsewhere a machine without a package index still has the other tests.
    if os.environ.get("CI") or "DO NOT MATCH THE HASHES" in _failed[name]:
        raise AssertionError(reason)
    pytest.skip(reason)


def said(error: subprocess.SubprocessError) -> str:
    """The end of what a program complained of, or that it did not end."""
    complained = isinstance(error, subprocess.CalledProcessError) and error.stderr
    return str(complained or error).strip()[-1_000:]
