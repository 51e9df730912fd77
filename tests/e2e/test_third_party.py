"""The integration of the documentation, built and installed as a third party's, and used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_readme import differences, shown

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples"
PAGE = DOCS / "howto" / "write-an-integration.md"
PACKAGES = ("tinyrl", "rlvr_probe_tinyrl")
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources of both packages, as somebody has them in repositories of their own."""
    folder = tmp_path_factory.mktemp("third-party")
    for package in PACKAGES:
        shutil.copytree(EXAMPLES / package, folder / package)
    return folder


@pytest.fixture(scope="module")
def environ(folder: Path) -> dict[str, str]:
    """An environment in which both are installed, from wheels that their build backend made."""
    site = folder / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
    subprocess.run([*command, *(str(folder / name) for name in PACKAGES)], check=True, timeout=120)
    return {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(site),
        "HOME": str(folder),
    }


def test_its_own_tests_pass(folder: Path, environ: dict[str, str]) -> None:
    done = subprocess.run(
        ["python", "-m", "pytest", "-q", "-Werror"],
        env=environ,
        cwd=folder / "rlvr_probe_tinyrl",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr


def test_the_page_that_explains_it_shows_what_happens(
    folder: Path, environ: dict[str, str]
) -> None:
    user = folder / "tinyrl"
    commands = list(shown(PAGE))
    assert [command.command.split()[1] for command in commands] == [
        "doctor",
        "run",
        "show",
        "convert",
        "validate",
    ]
    for one in commands:
        done = subprocess.run(
            ["bash", "-c", one.command],
            env=environ,
            cwd=user,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout
        assert differences(one.output, done.stdout) == []

    document = user / "document.json"
    command = f"rlvr-probe show rlvr-probe-runs --json > {document.name}"
    subprocess.run(["bash", "-c", command], env=environ, cwd=user, check=True, timeout=120)
    assert json.loads(document.read_text())["lost_records"] == 0
    manifest = json.loads((user / "workload" / "manifest.json").read_text())
    assert manifest["totals"]["trajectories"] == 6 * 16


def test_the_training_is_what_it_is_without_the_probe(
    folder: Path, environ: dict[str, str]
) -> None:
    """By the number that it prints at its end."""
    command = ["python", "train.py"]
    done = subprocess.run(
        command, env=environ, cwd=folder / "tinyrl", capture_output=True, text=True, check=True
    )
    [plain] = [one.output[0] for one in shown(PAGE) if " run -- " in one.command]
    assert done.stdout.strip() == plain
