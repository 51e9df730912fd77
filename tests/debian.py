"""Programs of Debian, unpacked beside the tests: no root, and nothing is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.wheels import made

__all__ = ["program"]

_SOURCES = """\
Types: deb
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


def program(package: str, path: str) -> Path:
    """A program of a package, with whatever it needs on the machine already.

    Args:
        package: Its name in Debian.
        path: Of the program in it, for example ``usr/bin/prometheus``.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        pytest.skip("this machine is no Debian: it has no apt-get")

    def fill(folder: Path, listed: Path) -> None:
        try:
            _download(package, folder, ())
        except subprocess.CalledProcessError:
            # The lists of this machine are old, or not there.
            _download(package, folder, _own_lists(listed.parent))
        (archive,) = folder.glob("*.deb")
        subprocess.run(["dpkg", "-x", archive, folder], check=True, timeout=120)
        archive.unlink()

    try:
        folder = made(f"debian-{package}", f"{package}\n", fill)
    except subprocess.CalledProcessError as error:
        reason = f"{package} could not be downloaded: {error.stderr.strip()[-500:]}"
        if os.environ.get("CI"):
            raise AssertionError(reason) from None
        pytest.skip(reason)
    return folder / path


def _download(package: str, folder: Path, options: tuple[str, ...]) -> None:
    _apt(*options, "download", package, folder=folder)


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


def _apt(*arguments: str, folder: Path) -> None:
    # What apt-get's own user may not read is downloaded by this one.
    command = ["apt-get", "--quiet", "-o", "APT::Sandbox::User=", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=600)
