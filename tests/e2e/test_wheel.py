"""The wheel does all that the clone does: what a user gets who installs the package.

The environment is a fresh one: what the package is used with is linked into it from the environment
of the tests, and the package itself, which is editable there, comes from a wheel.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.e2e.test_readme import ROOT, Reader, follow_tutorial

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(2000)]

SOURCES = ("src", "integrations", "exporters")
BESIDE = ("README.md", "recipe", "tests")
"""What is in the folder of a package and not part of it."""

_OPENED = "import rlvr_probe; print(len(rlvr_probe.open_run('rlvr-probe-runs').steps))"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment in which the wheel is installed."""
    prefix = tmp_path_factory.mktemp("installed")
    venv.create(prefix, symlinks=True)
    for path in site_packages(Path(sys.prefix)).iterdir():
        if path.suffix != ".pth" and not path.name.lstrip("_").startswith("rlvr_probe"):
            (site_packages(prefix) / path.name).symlink_to(path)
    dist = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = dist.iterdir()
    pip = [sys.executable, "-m", "pip", "--python", str(prefix / "bin" / "python")]
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, "install", *options, str(wheel)], check=True, timeout=300)
    # The program in the environment of the tests would start the Python there.
    torchrun = prefix / "bin" / "torchrun"
    torchrun.write_text(f'#!/bin/sh\nexec {prefix}/bin/python -m torch.distributed.run "$@"\n')
    torchrun.chmod(torchrun.stat().st_mode | stat.S_IXUSR)
    return prefix


@pytest.fixture(scope="module")
def reader(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(tmp_path_factory.mktemp("clone"), environment)


def site_packages(prefix: Path) -> Path:
    [found] = prefix.glob("lib/python*/site-packages")
    return found


def packaged(folder: Path) -> dict[str, bytes]:
    """Files of the packages in ``folder``, by their path in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for package in folder.glob("rlvr_probe*/")
        if package.suffix != ".dist-info"
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
        if not set(BESIDE) & set(path.relative_to(package).parts[:1])
    }


def test_every_file_of_the_packages_is_installed(environment: Path) -> None:
    sources: dict[str, bytes] = {}
    for name in SOURCES:
        sources |= packaged(ROOT / name)
    # A page without its template, or a collector without its dashboards, would be missed by nobody
    # who works in a clone.
    suffixes = {Path(name).suffix for name in sources}
    assert {".py", ".html", ".css", ".js", ".json", ".yaml", ".typed"} <= suffixes
    assert packaged(site_packages(environment)) == sources


def test_nothing_of_the_clone_is_used(environment: Path) -> None:
    code = (
        "import sys; from importlib import metadata; import rlvr_probe, rlvr_probe_trl\n"
        "print(rlvr_probe.__file__, rlvr_probe_trl.__file__,"
        " metadata.distribution('rlvr-probe').locate_file('.'), sep='\\n'); print(*sys.path)"
    )
    command = [str(environment / "bin" / "python"), "-c", code]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=environment, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *places, path = done.stdout.splitlines()
    assert all(place.startswith(str(environment)) for place in places)
    assert not any(part.startswith(str(ROOT / name)) for part in path.split() for name in SOURCES)


def test_the_tutorial_is_followed(reader: Reader) -> None:
    follow_tutorial(reader)


def test_what_is_made_of_a_recording_is_made(reader: Reader) -> None:
    """Uses the recording that the tutorial made."""
    if not (reader.folder / "rlvr-probe-runs").exists():
        pytest.skip("the tutorial was not followed")
    printed = ""
    for command in (
        "rlvr-probe characterize rlvr-probe-runs --html report.html",
        "rlvr-probe export rlvr-probe-runs --to perfetto --out run.json.gz",
        "rlvr-probe stuck rlvr-probe-runs",
        f'python -c "{_OPENED}"',
    ):
        status, printed = reader.type(command)
        assert status == 0, printed
    assert printed == "6\n"
    assert (reader.folder / "report.html").stat().st_size > 50_000
