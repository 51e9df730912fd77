"""A recording of another user: who it is, and how to get at it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rlvr_probe import cli
from tests.journals import simple_run

# What it needs is loaded before: the interpreter itself may lie in a folder that is root's alone.
AS_NOBODY = """
import contextlib, grp, io, os, pwd, sys
from rlvr_probe import cli
from rlvr_probe.registry import EXPORTERS, load_all
list(load_all(EXPORTERS))
readable, *commands = sys.argv[1:]
with contextlib.redirect_stdout(io.StringIO()):
    for name in ("show", "stuck", "characterize"):
        cli.main([name, readable])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for command in commands:
    print(cli.main(command.split()), flush=True)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that everybody may look into; those of pytest are one user's own."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        if not all(above.stat().st_mode & 0o001 for above in folder.parents):
            pytest.skip("another user may not look into temporary folders here")
        folder.chmod(0o755)
        yield folder


def test_another_user_is_told_whose_it_is_and_what_to_ask_for(shared: Path) -> None:
    for name, runs, run in (("a", 0o755, 0o700), ("b", 0o755, 0o755), ("c", 0o700, 0o755)):
        simple_run(shared / name / "run-1", ranks=1, steps=1)
        for path in (shared / name / "run-1").iterdir():
            path.chmod(0o600)
        (shared / name / "run-1").chmod(run)
        (shared / name).chmod(runs)
    simple_run(shared / "mine", ranks=1, steps=1)
    closed = ("show a", "show a/run-1", "stuck a", "characterize a/run-1")
    for name in ("a", "c"):
        (shared / name / "workload").mkdir(mode=0o700)
    workloads = ("validate a/workload", "validate c/workload")
    commands = (*closed, "show b", "stuck b", "show c/run-1", *workloads)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(shared / "mine"), *commands],
        capture_output=True,
        text=True,
        cwd=shared,
        check=False,
    )
    assert done.stdout.split() == ["2"] * len(commands)
    said = done.stderr.splitlines()
    assert said[:4] == [
        "rlvr-probe: no permission to read a/run-1: it belongs to root, group root (mode"
        " drwx------), and you are nobody; ask root for it: chmod -R g+rX gives the group what is"
        " recorded, RLVR_PROBE_GROUP_READABLE=1 what will be"
    ] * len(closed)
    for line in said[4:6]:
        assert re.match(
            r"rlvr-probe: no permission to read b/run-1/p\w+\.0000\.jsonl: it belongs to root,",
            line,
        )
    assert f"{shared / 'c'} belongs to root, group root (mode drwx------)" in said[6]
    assert said[7].startswith("rlvr-probe: no permission to read a/workload: it belongs to root,")
    assert f"{shared / 'c'} belongs to root, group root (mode drwx------)" in said[8]


def test_who_may_not_read_the_newest_run_is_told_that_an_older_one_is_taken(shared: Path) -> None:
    runs = shared / "runs"
    for age, (name, mode) in enumerate(
        (("newest", 0o700), ("new", 0o711), ("mine", 0o755), ("old", 0o700), (".hidden", 0o700))
    ):
        simple_run(runs / name, ranks=1, steps=1)
        then = time.time() - 100 * age * (name != ".hidden")
        for path in (*(runs / name).iterdir(), runs / name):
            path.chmod(0o644 if path.is_file() else mode)
            os.utime(path, (then, then))
    runs.chmod(0o755)
    (shared / "out").mkdir()
    (shared / "out").chmod(0o777)
    commands = (
        "show runs",
        "stuck runs",
        "characterize runs",
        "convert runs --to polytrace --out out/workload",
        "export runs --to perfetto --out out/timeline",
        "show runs/mine",
    )
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(runs / "mine"), *commands],
        capture_output=True,
        text=True,
        cwd=shared,
        check=False,
    )
    told = [line for line in done.stderr.splitlines() if "may be newer" in line]
    assert told == [
        "rlvr-probe: warning: newest (and 1 more) may be newer and is not readable: it belongs to"
        " root, group root (mode drwx------); this is mine"
    ] * (len(commands) - 1)
    assert len(re.findall(r"^0$", done.stdout, re.MULTILINE)) == len(commands)


def test_another_user_is_told_whose_folder_keeps_a_result_from_being_written(
    shared: Path,
) -> None:
    simple_run(shared / "mine", ranks=1, steps=1)
    for path in ((shared / "mine"), *(shared / "mine").iterdir()):
        path.chmod(0o755)
    (shared / "closed" / "in").mkdir(parents=True)
    (shared / "closed").chmod(0o700)
    places = ("closed/new", "closed/in/new")
    commands = [
        f"{command} {place}"
        for place in places
        for command in (
            "characterize mine --html",
            "characterize mine --json",
            "characterize mine --save",
            "convert mine --to polytrace --out",
            "export mine --to perfetto --out",
        )
    ]
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(shared / "mine"), *commands],
        capture_output=True,
        text=True,
        cwd=shared,
        check=False,
    )
    assert done.stdout.split() == ["2"] * len(commands)
    assert done.stderr.splitlines() == [
        f"rlvr-probe: no permission to write {command.split()[-1]}: {shared / 'closed'} belongs to"
        " root, group root (mode drwx------), and you are nobody; expected a folder that is yours"
        for command in commands
    ]


def test_a_folder_of_runs_none_of_which_is_one_is_no_question_of_permission(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes").mkdir()
    assert cli.main(["show", str(tmp_path)]) == cli.UNABLE
    assert "holds no recording" in capsys.readouterr().err
