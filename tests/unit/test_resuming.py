"""What was interrupted goes on where it stopped, and a whole run leaves its result."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.resuming import PAGE, write_result

ROOT = Path(__file__).parents[2]
TESTS = """
import os, pathlib, pytest

def ran(name):
    with open("ran.txt", "a") as file:
        print(name, file=file)

def test_first():
    ran("first")

def test_deadly():
    ran("deadly")
    if os.environ.get("DEADLY"):
        os.kill(os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid(), 9)

def test_last():
    ran("last")
    assert pathlib.Path("well").exists()

def test_skipped():
    pytest.skip("never here")
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs pytest with the plugin in a repository of its own."""

    def git(*arguments: str) -> None:
        names = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True)

    files = {
        "pyproject.toml": "[tool.pytest.ini_options]\ntestpaths = ['tests']\n",
        "tests/test_it.py": TESTS,
        ".gitignore": "ran.txt\nwell\n.pytest_cache\n__pycache__\n",
        PAGE: "# Page\n\nLast `make conformance-full`: never.\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message=one")

    def start(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        # Not all plugins that are installed: they take a second to load.
        plugins = ["-p", "xdist.plugin", "-p", "tests.resuming"]
        command = [sys.executable, "-m", "pytest", *plugins, *arguments]
        kept = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
        kept["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        return subprocess.run(
            command,
            cwd=tmp_path,
            env={**kept, "PYTHONPATH": str(ROOT), **environ},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return start


def ran(folder: Path) -> list[str]:
    """Which tests have run since this was last asked."""
    names = (folder / "ran.txt").read_text().split()
    (folder / "ran.txt").unlink()
    return names


def result(folder: Path) -> str:
    [line] = re.findall("Last `make conformance-full`: (.*)", (folder / PAGE).read_text())
    return str(line)


def test_what_passed_before_a_kill_is_not_run_again(run: Run, tmp_path: Path) -> None:
    assert run(DEADLY="1").returncode == -9
    assert ran(tmp_path) == ["first", "deadly"]
    assert result(tmp_path) == "never."
    assert run().returncode == 1
    assert ran(tmp_path) == ["deadly", "last"]
    assert re.fullmatch(
        r"[0-9a-f]{9}, \d{4}-\d\d-\d\d, 0 min, 2 passed, 1 failed, 1 skipped\.", result(tmp_path)
    )
    (tmp_path / "well").touch()
    assert run().returncode == 0
    assert ran(tmp_path) == ["last"]
    assert "-dirty, " in result(tmp_path)  # the last result was written into a page
    assert result(tmp_path).endswith(", 3 passed, 1 skipped.")


def test_a_change_of_code_starts_anew_and_one_of_a_page_does_not(run: Run, tmp_path: Path) -> None:
    (tmp_path / "well").touch()
    run()
    assert ran(tmp_path) == ["first", "deadly", "last"]
    (tmp_path / "NEWS.md").write_text("new\n")
    run()
    assert not (tmp_path / "ran.txt").exists()
    (tmp_path / "tests" / "test_it.py").write_text(TESTS + "\n# changed\n")
    run()
    assert ran(tmp_path) == ["first", "deadly", "last"]


@pytest.mark.conformance
def test_workers_leave_the_result_to_the_one_who_controls_them(run: Run, tmp_path: Path) -> None:
    (tmp_path / "well").touch()
    spread = ("-p", "tests.scheduling", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
    assert run(*spread).returncode == 0
    assert result(tmp_path).endswith(", 3 passed, 1 skipped.")
    ran(tmp_path)
    run(*spread)
    assert not (tmp_path / "ran.txt").exists()


@pytest.mark.parametrize("some", [("-k", "first"), ("tests/test_it.py",)])
def test_a_part_leaves_no_result(run: Run, tmp_path: Path, some: tuple[str, ...]) -> None:
    run(*some)
    assert result(tmp_path) == "never."


def test_a_page_without_the_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / PAGE).write_text("nothing\n")
    with pytest.raises(ValueError, match="one line 'Last"):
        write_result(tmp_path / PAGE, "Last `make conformance-full`: x.")
