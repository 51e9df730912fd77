"""Releases of TRL beside the installed one, each unpacked into a folder of its own.

A folder is made once, from the pinned lists in ``requirements/``, and kept in the virtual
environment that runs the tests. To run a release, its folders go in front of that environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from threading import Lock

import pytest

__all__ = ["RELEASES", "folders", "numbers", "transformers4", "unpacked"]

REQUIREMENTS = Path(__file__).parents[3] / "requirements"
KEPT = Path(sys.prefix) / "releases"

_making = Lock()


def _pins() -> dict[str, str]:
    lines = (REQUIREMENTS / "trl-releases.txt").read_text().splitlines()
    pins = [line for line in lines if line.startswith("trl==")]
    return {pin.split()[0].partition("==")[2]: pin for pin in pins}


RELEASES = _pins()
"""Line of the pinned list by version, oldest first."""


def numbers(version: str) -> tuple[int, ...]:
    """A version, to be compared."""
    return tuple(int(number) for number in version.split("."))


def unpacked(version: str) -> Path:
    """A folder with this release of TRL, and nothing that it depends on."""
    return _made(f"trl-{version}", RELEASES[version])


def transformers4() -> Path:
    """A folder with transformers 4 and what goes with it."""
    return _made("transformers4", (REQUIREMENTS / "transformers4.txt").read_text())


def folders(version: str) -> list[Path]:
    """What to put in front of the environment to run this release."""
    # TRL 0.28 and older check the version of transformers, and refuse 5.
    older = [transformers4()] if numbers(version) < (0, 29) else []
    return [unpacked(version), *older]


def _made(name: str, pins: str) -> Path:
    """The folder ``name`` with the wheels of a list, unpacked without their dependencies."""
    folder, listed = KEPT / name, KEPT / f"{name}.txt"
    with _making:
        if folder.is_dir() and listed.exists() and listed.read_text() == pins:
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        KEPT.mkdir(exist_ok=True)
        listed.write_text(pins)
        with tempfile.TemporaryDirectory(dir=KEPT) as scratch:
            _download(listed, scratch)
            # A wheel is a package as it is imported; `pip install` would take three times as long.
            for wheel in Path(scratch).glob("*.whl"):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(Path(scratch) / "unpacked")
            (Path(scratch) / "unpacked").rename(folder)
        return folder


def _download(listed: Path, into: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    command += ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
    done = subprocess.run(
        [*command, "--dest", into, "--requirement", str(listed)],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    if done.returncode == 0:
        return
    listed.unlink()
    reason = f"{listed.stem} could not be downloaded: {done.stderr.strip()[-500:]}"
    # Elsewhere a machine without a package index still has the other tests.
    if os.environ.get("CI") or "DO NOT MATCH THE HASHES" in done.stderr:
        raise AssertionError(reason)
    pytest.skip(reason)
