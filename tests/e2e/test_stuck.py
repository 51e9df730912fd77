"""A run that hangs is looked at from outside while it hangs, and after it was killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlvr_probe import cli
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


@dataclass(frozen=True)
class Hanging:
    """A process that records, and hangs in what it did forty times."""

    folder: Path
    process: subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hanging, Hanging]]:
    """Two of them, so that the ten seconds in which nothing is said of them are the same ones."""
    made = list[Hanging]()
    for _ in range(2):
        folder = tmp_path_factory.mktemp("hanging")
        (folder / "job.py").write_text(HANGS)
        process = subprocess.Popen(
            [sys.executable, "job.py"], cwd=folder, env={**os.environ, "RLVR_PROBE_SIDECAR": "0"}
        )
        made.append(Hanging(folder, process))
    try:
        for one in made:
            until(one, lambda found: found["compared_with"] == 40, "--no-stacks")
        made[1].process.send_signal(signal.SIGSTOP)
        yield made[0], made[1]
    finally:
        for one in made:
            one.process.kill()
            one.process.wait()


@pytest.fixture
def hanging(both: tuple[Hanging, Hanging]) -> Hanging:
    """One that hangs."""
    return both[0]


@pytest.fixture
def stopped(both: tuple[Hanging, Hanging]) -> Hanging:
    """One that stands still since then, and gives no sign of life."""
    return both[1]


def until(one: Hanging, condition: Callable[[dict[str, Any]], bool], *more: str) -> Any:
    return look_until(one.folder / "runs", condition, *more)


def test_watching_looks_again_and_again(stopped: Hanging) -> None:
    command = [str(RLVR_PROBE), "stuck", "runs", "--watch", "0.2", "--json", "--no-stacks"]
    with subprocess.Popen(
        command, cwd=stopped.folder, stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        seen = [json.loads(watching.stdout.readline())["findings"][0] for _ in range(4)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=60) == 130
    ages = [one["open_s"] for one in seen]
    assert ages == sorted(set(ages))
    assert {one["pid"] for one in seen} == {stopped.process.pid}


def test_a_process_that_stands_still_is_silent(stopped: Hanging) -> None:
    [found] = until(stopped, lambda one: one["verdict"] == "silent")
    assert found["silent_s"] > 10
    assert found["stack"][0]["function"] == "never_comes_back"  # py-spy reads its memory


def test_where_there_is_no_py_spy_it_says_what_helps(
    stopped: Hanging, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    until(stopped, lambda one: one["verdict"] == "silent", "--no-stacks")
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert cli.main(["stuck", str(stopped.folder / "runs")]) == 1
    said = capsys.readouterr().out
    assert "pip install py-spy" in said
    assert str(stopped.process.pid) in said


def test_what_hangs_is_named_with_the_line_that_it_hangs_in(hanging: Hanging) -> None:
    """Last: it ends the process."""
    [found] = until(hanging, lambda one: one["verdict"] == "overdue")
    assert (found["pid"], found["span"], found["detail"]) == (hanging.process.pid, "user", "verify")
    assert found["compared_with"] == 40
    assert [frame["function"] for frame in found["stack"]] == [
        "never_comes_back", "verify", "<module>",
    ]  # fmt: skip
    assert [frame["file"] for frame in found["stack"]] == ["job.py"] * 3
    code, document = look(hanging.folder / "runs", "--no-stacks")
    assert (code, document["findings"][0]["stack"]) == (1, None)
    hanging.process.kill()
    hanging.process.wait()
    [dead] = until(hanging, lambda one: one["state"] == "died")
    # Of a run that nobody goes on with, it is what it hung in.
    assert (dead["verdict"], dead["stack"]) == ("overdue", None)
    assert dead["open_s"] > 10
