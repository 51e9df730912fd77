"""Programs of Debian, unpacked beside the tests: no root, and nothing is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.request
from functools import cache
from pathlib import Path

import pytest

from tests.wheels import made, said

__all__ = ["program"]

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_ARCHIVE = "http://deb.debian.org/debian"
_SOURCES = f"""\
Types: deb
URIs: {_ARCHIVE}
Suites: bookworm
Components: main
Signed-By: {_KEYRING}
"""
_PATIENCE = ("-o", "Acquire::Retries=3", "-o", "Acquire::http::Timeout=30")

_failed: dict[str, str] = {}
"""What went wrong, by package: it is tried once per test run."""


def program(package: str, path: str, *, needs: bool = False) -> Path:
    """A program of a package.

    Args:
        package: Its name in Debian.
        path: Of the program in it, for example ``usr/bin/prometheus``.
        needs: Whether packages that it needs, and that the machine does not have, are unpacked
            into the same folder. Otherwise it has whatever it needs on the machine already.
    """
    if None in map(shutil.which, ("apt-get", "dpkg")) or not _KEYRING.exists():
        pytest.skip("this machine is no Debian: it has no apt-get, or not Debian's keys")

    def fill(folder: Path, listed: Path) -> None:
        try:
            _download(package, folder, (), needs)
        except subprocess.CalledProcessError:
            # The lists of this machine are old, or not there.
            _download(package, folder, _own_lists(listed.parent), needs)
        for archive in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", archive, folder], check=True, timeout=120)
            archive.unlink()

    if package not in _failed:
        try:
            return made(f"debian-{package}", f"{package}\n", fill) / path
        except subprocess.SubprocessError as error:
            _failed[package] = said(error)
    reason = f"{package} could not be downloaded: {_failed[package]}"
    # What runs the tests has a package index of Python; an archive of Debian it may not have.
    if os.environ.get("CI") and _is_there():
        raise AssertionError(reason)
    pytest.skip(reason)


@cache
def _is_there() -> bool:
    """Whether the archive of Debian answers."""
    try:
        with urllib.request.urlopen(f"{_ARCHIVE}/dists/bookworm/Release", timeout=30):
            return True
    except OSError:
        return False


def _download(package: str, folder: Path, options: tuple[str, ...], needs: bool) -> None:
    packages = [package]
    if needs:
        asked = ("--simulate", "--no-install-recommends", "install", package)
        plan = _apt(*options, *asked, folder=folder)
        packages = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    _apt(*options, "download", *packages, folder=folder)


def _own_lists(folder: Path) -> tuple[str, ...]:
    """Lists of packages of our own, fetched anew; what tells apt-get to use them."""
    sources = folder / "debian.sources"
    sources.write_text(_SOURCES)
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    settings = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "Acquire::Languages": "none",
    }
    options = tuple(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))
    _apt(*options, "update", folder=folder)
    return options


def _apt(*arguments: str, folder: Path) -> str:
    # What apt-get's own user may not read is downloaded by this one.
    command = ["apt-get", "--quiet", "-o", "APT::Sandbox::User=", *_PATIENCE, *arguments]
    done = subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True, timeout=600
    )
    return done.stdout
