"""A run that hangs is looked at from outside while it hangs, and after it was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hanging import look, look_until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")

HANGS = """
import time, rlvr_probe
rlvr_probe.attach(out="runs", run_id="one")
def verify(i):
    with rlvr_probe.span("verify"):
        time.sleep(0.01) if i < 40 else never_comes_back()
def never_comes_back():
    time.sleep(1000)
for i in range(41):
    verify(i)
"""
RLVR_PROBE = Path(sys.executable).with_name("rlvr-probe")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that records, and hangs in what it did forty times."""
    (tmp_path / "job.py").write_text(HANGS)
    process = subprocess.Popen(
        [sys.executable, "job.py"], cwd=tmp_path, env={**os.environ, "RLVR_PROBE_SIDECAR": "0"}
    )
    yield process
    process.kill()
    process.wait()


def until(folder: Path, condition: Callable[[dict[str, Any]], bool], *more: str) -> Any:
    return look_until(folder / "runs", condition, *more)


def test_what_hangs_is_named_with_the_line_that_it_hangs_in(
    job: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    [found] = until(tmp_path, lambda one: one["verdict"] == "overdue")
    assert (found["pid"], found["span"], found["detail"]) == (job.pid, "user", "verify")
    assert found["compared_with"] == 40
    assert [frame["function"] for frame in found["stack"]] == [
        "never_comes_back", "verify", "<module>",
    ]  # fmt: skip
    assert [frame["file"] for frame in found["stack"]] == ["job.py"] * 3
    code, document = look(tmp_path / "runs", "--no-stacks")
    assert (code, document["findings"][0]["stack"]) == (1, None)
    job.kill()
    job.wait()
    [dead] = until(tmp_path, lambda one: one["state"] == "died")
    # Of a run that nobody goes on with, it is what it hung in.
    assert (dead["verdict"], dead["stack"]) == ("overdue", None)
    assert dead["open_s"] > 10


def test_a_process_that_stands_still_is_silent(
    job: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    until(tmp_path, lambda one: one["compared_with"] == 40, "--no-stacks")
    job.send_signal(signal.SIGSTOP)
    [found] = until(tmp_path, lambda one: one["verdict"] == "silent")
    assert found["silent_s"] > 10
    assert found["stack"][0]["function"] == "never_comes_back"  # py-spy reads its memory


def test_watching_looks_again_and_again(job: subprocess.Popen[bytes], tmp_path: Path) -> None:
    until(tmp_path, lambda one: one["compared_with"] == 40, "--no-stacks")
    command = [str(RLVR_PROBE), "stuck", "runs", "--watch", "0.2", "--json", "--no-stacks"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        seen = [json.loads(watching.stdout.readline())["findings"][0] for _ in range(4)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=60) == 130
    ages = [one["open_s"] for one in seen]
    assert ages == sorted(set(ages))
    assert {one["pid"] for one in seen} == {job.pid}


def test_where_there_is_no_py_spy_it_says_what_helps(
    job: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    until(tmp_path, lambda one: one["verdict"] == "overdue", "--no-stacks")
    code = (
        "import shutil, sys; shutil.which = lambda *_, **__: None; from rlvr_probe import cli;"
        " sys.exit(cli.main(['stuck', 'runs']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "pip install py-spy" in done.stdout
    assert str(job.pid) in done.stdout
