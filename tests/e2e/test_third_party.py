"""The plugins of the documentation, built and installed as a third party's, and used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_readme import differences, shown
from tests.surroundings import ROOMY

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples"
INTEGRATION = DOCS / "howto" / "write-an-integration.md"
EXPORTER = DOCS / "howto" / "write-an-exporter.md"
PACKAGES = ("tinyrl", "rlvr_probe_tinyrl", "rlvr_probe_lengths")
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources of the packages, as somebody has them in repositories of their own."""
    folder = tmp_path_factory.mktemp("third-party")
    for package in PACKAGES:
        shutil.copytree(
            EXAMPLES / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return folder


@pytest.fixture(scope="module")
def environ(folder: Path) -> dict[str, str]:
    """An environment in which all are installed, from wheels that their build backend made."""
    site = folder / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
    subprocess.run([*command, *(str(folder / name) for name in PACKAGES)], check=True, timeout=120)
    return {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(site),
        "HOME": str(folder),
        "RLVR_PROBE_SIDECAR": "0",
        **ROOMY,
    }


def type_in(command: str, folder: Path, environ: dict[str, str]) -> str:
    """What a command prints."""
    done = subprocess.run(
        ["bash", "-c", command],
        env=environ,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("package", "tests"), [("rlvr_probe_tinyrl", 4), ("rlvr_probe_lengths", 6)]
)
def test_its_own_tests_pass(
    package: str, tests: int, folder: Path, environ: dict[str, str]
) -> None:
    printed = type_in("python -m pytest -q -Werror", folder / package, environ)
    assert f"{tests} passed" in printed


@pytest.mark.conformance
def test_the_pages_that_explain_them_show_what_happens(
    folder: Path, environ: dict[str, str]
) -> None:
    user = folder / "tinyrl"
    commands = [one for page in (INTEGRATION, EXPORTER) for one in shown(page)]
    assert [one.command.split()[1] for one in commands] == [
        *("doctor", "run", "show", "convert", "validate"),
        *("convert", "validate", "-n"),
    ]
    for one in commands:
        printed = type_in(one.command, user, environ)
        assert differences(one.output, printed) == []

    document = json.loads(type_in("rlvr-probe show rlvr-probe-runs --json", user, environ))
    assert document["lost_records"] == 0
    manifest = json.loads((user / "workload" / "manifest.json").read_text())
    lines = (user / "lengths" / "lengths.csv").read_text().splitlines()
    assert manifest["totals"]["trajectories"] == len(lines) - 1 == 6 * 16


def test_a_training_that_is_recorded_ends_as_one_that_is_not(
    folder: Path, environ: dict[str, str]
) -> None:
    """By the number that it prints at its end."""
    [recorded] = [one.output[0] for one in shown(INTEGRATION) if " run -- " in one.command]
    assert type_in("python train.py", folder / "tinyrl", environ).strip() == recorded
