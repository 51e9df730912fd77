"""Tests that share a training share a worker, and what waits long does not start last."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from tests.scheduling import COMPUTING, WAITING, group_of, in_turns, rank_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("integrations/rlvr_probe_verl/tests/test_jobs.py", "rlvr_probe_verl"),
        ("integrations/rlvr_probe_verl/tests/test_deaths.py", "rlvr_probe_verl"),
        (
            "exporters/rlvr_probe_otlp/tests/test_live.py",
            "exporters/rlvr_probe_otlp/tests/test_live.py",
        ),
    ],
)
def test_the_tests_of_an_integration_are_one_group_and_those_of_any_other_file(
    path: str, group: str
) -> None:
    assert group_of(PurePosixPath(path)) == group


def test_what_waits_comes_first_and_what_is_named_exists() -> None:
    paths = ["tests/unit/test_guard.py", "exporters/x/y.py", "tests/e2e/test_launch.py"]
    paths += ["tests/e2e/test_spool.py"]
    assert sorted(paths, key=lambda path: rank_of(PurePosixPath(path))) == paths[::-1]
    assert [path for path in (*WAITING, *COMPUTING) if not (ROOT / path).exists()] == []


def test_what_waits_is_spread_over_what_computes() -> None:
    unit = [f"tests/unit/test_{letter}.py" for letter in "abc"]
    paths = [*unit, "tests/e2e/test_launch.py", "tests/e2e/test_spool.py", "exporters/x/y.py"]
    assert in_turns(map(PurePosixPath, paths)) == [
        "tests/e2e/test_spool.py", "exporters/x/y.py", "tests/e2e/test_launch.py", *unit,
    ]  # fmt: skip


@pytest.mark.conformance
def test_the_files_of_an_integration_run_in_one_worker(tmp_path: Path) -> None:
    source = "import os, pathlib\n" + "".join(
        f"def test_{number}():\n    me = os.environ['PYTEST_XDIST_WORKER']\n"
        "    pathlib.Path(__file__ + me).touch()\n"
        for number in range(4)
    )
    folder = tmp_path / "integrations" / "one" / "tests"
    folder.mkdir(parents=True)
    for name in ("a", "b", "c"):
        (folder / f"test_{name}.py").write_text(source)
        (tmp_path / f"test_{name}.py").write_text(source)
    kept = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    command = [sys.executable, "-m", "pytest", "-p", "xdist.plugin", "-p", "tests.scheduling"]
    command += [
        "-n",
        "2",
        "--dist",
        "loadfile",
        "--no-loadscope-reorder",
        "--import-mode=importlib",
    ]
    subprocess.run(
        [*command, "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=True,
        timeout=120,
    )
    assert len({path.suffix for path in folder.glob("*.pygw*")}) == 1
    assert len([*tmp_path.glob("*.pygw*")]) == 3
